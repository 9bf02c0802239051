"""Health, version, and tokens: what needs no token itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from app.interfaces.http.dependencies import HostOf, the_tokens
from app.interfaces.http.schemas.monitor import HealthInfo, Token, TokenBody, VersionInfo
from app.interfaces.http.tokens import Tokens
from app.kernel.telemetry import get_logger
from app.kernel.version import program_version
from app.services import jobs
from app.store.errors import StoreError

_log = get_logger("api")

login = APIRouter(tags=["Login"])
router = APIRouter(tags=["Monitor"])


@login.post("/auth/token", status_code=201)
async def post_token(body: TokenBody, tokens: Annotated[Tokens, Depends(the_tokens)]) -> Token:
    """A bearer token for a user name and password."""
    return Token(access_token=tokens.issue(body.username, body.password))


@router.get("/version")
async def get_version() -> VersionInfo:
    """The version of this service."""
    return VersionInfo(version=program_version())


@router.get("/monitor/health")
async def get_health(host: HostOf) -> HealthInfo:
    """Health of every kind of process, judged by real progress. Always 200: the body tells."""
    try:
        found = await jobs.health(host.database, host.settings)
    except (StoreError, OSError) as error:
        _log.debug("the database is away", action="health_without_database", error=str(error))
        unknown = {name: {"status": "unknown"} for name in jobs.JOB_TYPES}
        return HealthInfo.model_validate({"metadatabase": {"status": "unhealthy"}, **unknown})
    parts = {name: _part(name, kind) for name, kind in found.items()}
    return HealthInfo.model_validate({"metadatabase": {"status": "healthy"}, **parts})


def _part(name: str, kind: jobs.JobHealth) -> dict[str, Any]:
    return {
        # A kind that never ran has no status, as in the field.
        "status": None if kind.status is jobs.Health.NONE else kind.status.value,
        "latest_progress": kind.latest_progress,
        "processes": list(kind.processes),
        "unserved": list(kind.unserved),
        f"latest_{name}_heartbeat": kind.latest_heartbeat,
    }
