"""Every error is ``{"detail": …}`` with the right status; nothing leaves as a bare 500."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from app.interfaces.http.tokens import NotAuthenticated
from app.kernel.errors import AlreadyExists, InvalidRequest, NotFound
from app.kernel.telemetry import get_logger
from app.store.errors import ConstraintViolated, DatabaseUnavailable, DataRefused
from app.store.listings.paging import UnknownOrder
from watchers.errors import PayloadRefused

_log = get_logger("api")

#: Longest echo of a refused input, in characters.
ECHO_LIMIT = 200

_STATUS: dict[type[Exception], int] = {
    NotFound: 404,
    AlreadyExists: 409,
    InvalidRequest: 400,
    UnknownOrder: 400,
    PayloadRefused: 422,
    DataRefused: 422,
    ConstraintViolated: 409,
    DatabaseUnavailable: 503,
}


def install(app: FastAPI) -> None:
    """Register the handlers."""
    for kind, status in _STATUS.items():
        app.add_exception_handler(kind, _answer(status))
    app.add_exception_handler(NotAuthenticated, _unauthenticated)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


def _answer(status: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def handler(_request: Request, error: Exception) -> JSONResponse:
        headers = {"Retry-After": "1"} if status == 503 else None
        detail = "the database is away; try again" if status == 503 else str(error)
        if isinstance(error, PayloadRefused) and error.code == "size":
            return JSONResponse({"detail": detail}, status_code=413)
        return JSONResponse({"detail": detail}, status_code=status, headers=headers)

    return handler


async def _unauthenticated(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=401, headers={"WWW-Authenticate": "Bearer"})


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = []
    for entry in error.errors():
        place = {key: entry[key] for key in ("type", "loc", "msg") if key in entry}
        place["input"] = _echo(entry.get("input"))
        found.append(place)
    return JSONResponse({"detail": jsonable_encoder(found)}, status_code=422)


def _echo(value: object) -> object:
    """What was given, if it is small and plain; a body that was refused is not sent back whole."""
    if value is None or isinstance(value, bool | int):
        return value if not isinstance(value, int) or abs(value) < 2**63 else str(value)[:ECHO_LIMIT]
    return str(value)[:ECHO_LIMIT].encode("utf-8", "replace").decode()


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    reference = uuid.uuid4().hex[:12]
    _log.error(
        "a request failed",
        action="request_failed",
        method=request.method,
        path=request.url.path,
        reference=reference,
        exc_info=error,
    )
    return JSONResponse({"detail": f"internal error; the log has it under {reference}"}, status_code=500)
