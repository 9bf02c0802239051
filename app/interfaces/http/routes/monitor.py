"""Health, version, and tokens: what needs no token itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from app.interfaces.http.dependencies import HostOf, the_tokens
from app.interfaces.http.schemas import Token, TokenBody
from app.interfaces.http.tokens import Tokens
from app.kernel.version import program_version
from app.services import jobs
from app.store.errors import DatabaseUnavailable

public = APIRouter()
router = APIRouter(tags=["Monitor"])


@public.post("/auth/token", status_code=201, tags=["Login"])
async def post_token(body: TokenBody, tokens: Annotated[Tokens, Depends(the_tokens)]) -> Token:
    """A bearer token for a user name and password."""
    return Token(access_token=tokens.issue(body.username, body.password))


@router.get("/version")
async def get_version() -> dict[str, str | None]:
    """The version of this service."""
    return {"version": program_version(), "git_version": None}


@router.get("/monitor/health")
async def get_health(host: HostOf) -> dict[str, Any]:
    """Health of every kind of process, judged by real progress. Always 200: the body tells."""
    try:
        found = await jobs.health(host.database, host.settings)
    except DatabaseUnavailable:
        parts: dict[str, Any] = {name: {"status": "unknown"} for name in (*_HEARTBEATS, "api_server")}
        return {"metadatabase": {"status": "unhealthy"}, **parts}
    answer: dict[str, Any] = {"metadatabase": {"status": "healthy"}}
    for name, kind in found.items():
        part: dict[str, Any] = {
            # A kind that never ran has no status, as in the field.
            "status": None if kind.status is jobs.Health.NONE else kind.status.value,
            "latest_progress": kind.latest_progress,
            "processes": [
                {"id": row.id, "hostname": row.hostname, "pid": row.pid, "latest_heartbeat": row.latest_heartbeat,
                 "latest_progress": row.latest_progress}
                for row in kind.processes
            ],
        }  # fmt: skip
        part[_HEARTBEATS.get(name, "latest_heartbeat")] = kind.latest_heartbeat
        answer[name] = part
    return answer


_HEARTBEATS = {
    "scheduler": "latest_scheduler_heartbeat",
    "triggerer": "latest_triggerer_heartbeat",
    "dag_processor": "latest_dag_processor_heartbeat",
}
