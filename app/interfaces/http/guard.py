"""What surrounds every route: the token, security headers, and the last resort for what nobody foresaw."""

from __future__ import annotations

import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.interfaces.http.answers import send_problem
from app.interfaces.http.tokens import NotAuthenticated, Tokens
from app.kernel.telemetry import get_logger

_log = get_logger("api")

#: Below this path everything needs a token, known or not, except what is named.
PROTECTED = "/api/"
PUBLIC = frozenset({"/api/v2/version", "/api/v2/monitor/health"})

_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Guard:
    """Adds security headers, and turns an unforeseen exception into a 500 that names its entry in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            await self._app(scope, receive, guarded)
        except Exception as error:
            reference = uuid.uuid4().hex[:12]
            _log.error(
                "a request failed",
                action="request_failed",
                method=scope["method"],
                path=scope["path"],
                reference=reference,
                exc_info=error,
            )
            if started:
                raise
            await send_problem(guarded, f"internal error; the log has it under {reference}", status=500)


class Authentication:
    """Answers 401 before the body is read. The caller's name is in the scope's ``caller`` for the routes."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["path"].startswith(PROTECTED) and scope["path"] not in PUBLIC:
            try:
                scope["caller"] = self._caller(scope)
            except NotAuthenticated as error:
                await send_problem(send, str(error), status=401, headers={"WWW-Authenticate": "Bearer"})
                return
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> str:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NotAuthenticated("Not authenticated")
        return self._tokens.user_of(token.strip())
