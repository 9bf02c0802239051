"""Answers written without a route: errors and refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Send


def json_answer(content: object, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """``content`` as JSON in plain ASCII: a lone surrogate that a caller sent must not break the answer about it."""
    return Response(
        json.dumps(content, separators=(",", ":")).encode(),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/json",
    )


def problem(detail: object, *, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """``{"detail": …}``."""
    return json_answer({"detail": detail}, status=status, headers=headers)


async def send_problem(send: Send, detail: str, *, status: int, headers: Mapping[str, str] | None = None) -> None:
    """``{"detail": …}`` from a middleware."""
    answer = problem(detail, status=status, headers=headers)
    await send({"type": "http.response.start", "status": status, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body})
