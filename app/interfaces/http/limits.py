"""Limits that hold before a request reaches a route."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Answers 413, naming both sizes, to bodies of more than ``limit`` bytes, announced or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit():
            await _answer(send, 400, "the header Content-Length is no number")
            return
        if int(announced) > self._limit:
            await self._refuse(send, int(announced))
            return
        await self._app(scope, *self._counting(receive, send))

    def _counting(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """``receive`` that ends the body at the limit, and ``send`` that then answers 413 whatever the route says."""
        seen = 0
        refused = False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            return {"type": "http.disconnect"} if seen > self._limit else message

        async def replaced(message: Message) -> None:
            nonlocal refused
            if seen <= self._limit:
                await send(message)
            elif not refused:
                refused = True
                await self._refuse(send, seen)

        return counted, replaced

    async def _refuse(self, send: Send, size: int) -> None:
        await _answer(send, 413, f"the body has {size} bytes or more; at most {self._limit} are accepted")


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
