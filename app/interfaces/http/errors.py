"""Every refusal is ``{"detail": …}`` with the right status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from app.interfaces.http.answers import problem
from app.interfaces.http.tokens import NotAuthenticated
from app.kernel.errors import AlreadyExists, InvalidRequest, NotFound, TooLarge
from app.kernel.telemetry import get_logger
from app.services.events import NotStoredYet
from app.services.versions import UnusableVersion
from app.store.errors import Conflict, ConstraintViolated, DatabaseUnavailable, DataRefused
from app.store.listings.paging import UnknownOrder
from watchers.errors import PayloadRefused

_log = get_logger("api")

#: Longest echo of a refused input, in characters.
ECHO_LIMIT = 200
#: Names of attributes whose refused value is not echoed.
SECRET = frozenset({"password"})

_STATUS: dict[type[Exception], int] = {
    NotFound: 404,
    AlreadyExists: 409,
    InvalidRequest: 422,
    TooLarge: 413,
    UnusableVersion: 409,
    UnknownOrder: 400,
    PayloadRefused: 422,
    ConstraintViolated: 409,
}
_UNSTORABLE = "a value in this request cannot be kept or looked for: it holds a NUL character, or is too large"
_AWAY: dict[type[Exception], str] = {
    DatabaseUnavailable: "the database is away; try again",
    Conflict: "too many requests change the same thing; try again",
}


def install(app: FastAPI) -> None:
    """Register the handlers."""
    for kind, status in _STATUS.items():
        app.add_exception_handler(kind, _answer(status))
    for kind, detail in _AWAY.items():
        app.add_exception_handler(kind, _try_again(detail))
    app.add_exception_handler(NotStoredYet, _try_again(None))
    app.add_exception_handler(DataRefused, _refused_value)
    app.add_exception_handler(NotAuthenticated, _unauthenticated)
    app.add_exception_handler(RequestValidationError, _invalid)


def refusal(error: Exception) -> tuple[int, str]:
    """Status and detail of what a request for one thing of several ended with. Raises what is no refusal."""
    for kind in type(error).__mro__:
        if kind in _STATUS:
            return _STATUS[kind], str(error)
        if kind in _AWAY:
            return 503, _AWAY[kind]
    if isinstance(error, DataRefused):
        return 422, _UNSTORABLE
    raise error


def _answer(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(_request: Request, error: Exception) -> Response:
        too_large = isinstance(error, PayloadRefused) and error.code == "size"
        return problem(str(error), status=413 if too_large else status)

    return handler


async def _refused_value(_request: Request, error: Exception) -> Response:
    _log.info("the database refused a value", action="value_refused", error=str(error))
    return problem(_UNSTORABLE, status=422)


def _try_again(detail: str | None) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(_request: Request, error: Exception) -> Response:
        return problem(detail or str(error), status=503, headers={"Retry-After": "1"})

    return handler


async def _unauthenticated(_request: Request, error: Exception) -> Response:
    return problem(str(error), status=401, headers={"WWW-Authenticate": "Bearer"})


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = []
    for entry in error.errors():
        place = list(entry["loc"])
        hidden = SECRET.intersection(str(part) for part in place)
        shown = {"type": entry["type"], "loc": place, "msg": entry["msg"]}
        found.append(shown if hidden else {**shown, "input": _echo(entry.get("input"))})
    return problem(found, status=422)


def _echo(value: object) -> object:
    """What was given, if it is plain and short; a body that was refused is not sent back whole."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    return value[:ECHO_LIMIT] if isinstance(value, str) else None
