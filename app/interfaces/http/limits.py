"""How large a body may be."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.interfaces.http.answers import send_problem

#: How much of a body that is too large is read and thrown away, so that its sender gets to read the answer.
DRAIN_LIMIT = 256 * 1024 * 1024


class BodyLimit:
    """Answers 413, naming size and limit, to bodies of more than ``limit`` bytes, announced or not."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._limit:
            # Whoever asks before sending is told at once.
            if b"expect" not in headers:
                await _drain(receive, 0)
            await self._refuse(send, f"the body has {announced[:20].decode()} bytes")
            return
        await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; past the limit the body ends, and 413 is answered whatever the route says."""
        seen, is_whole = 0, True

        async def counting() -> Message:
            nonlocal seen, is_whole
            if seen > self._limit:
                return {"type": "http.disconnect"}
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                if message.get("more_body"):
                    seen, is_whole = await _drain(receive, seen)
                return {"type": "http.disconnect"}
            return message

        async def unless_refused(message: Message) -> None:
            if seen <= self._limit:
                await send(message)

        await self._app(scope, counting, unless_refused)
        if seen > self._limit:
            await self._refuse(send, f"the body has {seen} bytes" if is_whole else f"the body has {seen} bytes or more")

    async def _refuse(self, send: Send, found: str) -> None:
        detail = f"{found}; the limit is {self._limit} bytes"
        await send_problem(send, detail, status=413, headers={"Connection": "close"})


async def _drain(receive: Receive, seen: int) -> tuple[int, bool]:
    """Read on; how many bytes came in all, and whether that is the whole body."""
    while seen <= DRAIN_LIMIT:
        message = await receive()
        seen += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return seen, message["type"] == "http.request"
    return seen, False
