"""The REST API as one ASGI application."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute

from app.interfaces.http import errors
from app.interfaces.http.dependencies import PostingTools, caller
from app.interfaces.http.guard import Authentication, Guard
from app.interfaces.http.limits import BodyLimit
from app.interfaces.http.routes import assets, dags, dead_letters, jobs, monitor, runs, tasks, triggers
from app.interfaces.http.schemas.base import Problem
from app.interfaces.http.tokens import Tokens
from app.kernel.version import program_version
from app.processes.host import Host
from app.processes.requeueing import Requeuer
from app.services.events import EventPoster
from app.services.named_assets import AssetNames

PREFIX = "/api/v2"
#: A body may be this much larger than the largest payload: names, and escapes of the JSON text.
BODY_ROOM = 64 * 1024

_PROBLEMS = {status: {"model": Problem} for status in (400, 401, 404, 409, 413, 422, 503)}


def create_application(host: Host, poster: EventPoster) -> FastAPI:
    """The application over an open host."""
    app = described_application()
    app.state.host = host
    app.state.posting = PostingTools(names=AssetNames(host.database), poster=poster)
    app.state.requeuer = Requeuer(host.database, host.notifier, host.settings)
    app.state.tokens = Tokens.load(host.settings)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, limit=2 * host.settings.max_payload_bytes + BODY_ROOM)
    app.add_middleware(Authentication, tokens=app.state.tokens)
    app.add_middleware(Guard)
    return app


def described_application() -> FastAPI:
    """Routes and their description, without anything to serve them from."""
    app = FastAPI(
        title="Tidegate",
        summary="Event-driven asset scheduling",
        version=program_version(),
        openapi_url="/openapi.json",
        responses=_PROBLEMS,  # type: ignore[arg-type]  # its keys are wider than what the parameter is declared with
        generate_unique_id_function=_operation_id,
    )
    errors.install(app)
    app.include_router(monitor.login)
    app.include_router(monitor.router, prefix=PREFIX)
    for part in (assets, dags, runs, tasks, triggers, dead_letters, jobs):
        app.include_router(part.router, prefix=PREFIX, dependencies=[Depends(caller)])
    return app


def _operation_id(route: APIRoute) -> str:
    """The name of the function: short, stable, and unique here."""
    return route.name
