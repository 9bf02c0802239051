"""The REST API as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI

from app.interfaces.http import errors
from app.interfaces.http.limits import BodyLimit
from app.interfaces.http.routes import assets, dags, monitor, runs, triggers
from app.interfaces.http.schemas import Problem
from app.interfaces.http.tokens import Tokens
from app.kernel.version import program_version
from app.processes.host import Host
from app.services.events import EventPoster

#: A body may be this much larger than the largest payload: names, and escapes of the JSON text.
BODY_ROOM = 64 * 1024

_PROBLEMS = {status: {"model": Problem} for status in (400, 401, 404, 409, 413, 422, 503)}


def create_application(host: Host, poster: EventPoster) -> FastAPI:
    """The application over an open host."""
    app = FastAPI(
        title="Tidegate",
        summary="Event-driven asset scheduling",
        version=program_version(),
        openapi_url="/openapi.json",
        responses=_PROBLEMS,  # type: ignore[arg-type]  # its keys are wider than what the parameter is declared with
    )
    app.state.host = host
    app.state.tokens = Tokens.load(host.settings)
    app.state.poster = poster
    errors.install(app)
    app.include_router(monitor.public)
    for router in (monitor.router, assets.router, dags.router, runs.router, triggers.router):
        app.include_router(router, prefix="/api/v2")
    app.add_middleware(BodyLimit, limit=2 * host.settings.max_payload_bytes + BODY_ROOM)
    return app
