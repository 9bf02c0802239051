"""Processes: their leases (:class:`JobSession`), the end of dead ones, and their health."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from app.kernel.settings import Settings
from app.services.job_sessions import JobSession
from app.store import jobs as statements
from app.store import triggers as trigger_statements
from app.store.database import Database, HotConnection
from app.store.jobs import JobRow
from app.store.wakeups import Notifier

__all__ = ["Health", "JobHealth", "JobSession", "end_silent", "fence_dead_owners", "health", "retire"]

#: Leases without a heartbeat after which a process that owns nothing is on record as ended.
_SILENT_LEASES = 10
#: Longest that health waits for the database, in seconds.
HEALTH_LIMIT = 2.0
JOB_TYPES = ("scheduler", "triggerer", "dag_processor", "api_server")


class Health(StrEnum):
    """Whether a kind of process does its work."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    NONE = "none"


class JobHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of one job type; ``processes`` are those that have not ended, dead ones beside a live one left out."""

    job_type: str
    status: Health
    latest_heartbeat: datetime | None = None
    latest_progress: datetime | None = None
    processes: tuple[JobRow, ...] = ()


async def fence_dead_owners(
    database: Database,
    notifier: Notifier,
    settings: Settings,
    *,
    job_type: str = "triggerer",
    self_id: int | None = None,
) -> list[int]:
    """End dead processes of this type and free the triggers of all that ended; returns the freed triggers.

    Dead is one whose lease ran out, or whose session lock is free while the server kept its sessions since its last
    heartbeat (a restart of the server takes everybody's locks and kills nobody).
    """

    async def work(hot: HotConnection) -> list[int]:
        await statements.end_dead_jobs(hot, job_type=job_type, lease=settings.lease_seconds, except_id=self_id)
        ended = await statements.ended_owners(hot)
        if not ended:
            return []
        return await trigger_statements.take_from(hot, owner_ids=ended, reason="its triggerer ended")

    freed = await database.retrying_hot(work)
    if freed:
        notifier.poke("triggers")
    return freed


async def end_silent(database: Database, settings: Settings) -> list[int]:
    """End the rows of API servers and dag processors that were killed; returns their ids.

    Nobody waits to take over from them, so there is no hurry: they must have been silent for many leases.
    """
    silence = _SILENT_LEASES * settings.lease_seconds
    return await database.retrying_hot(
        lambda hot: statements.end_silent_jobs(hot, job_types=["api_server", "dag_processor"], silence=silence)
    )


async def retire(database: Database, notifier: Notifier, job_id: int) -> None:
    """End the row of a session that lost its lease and free its triggers; harmless if a peer did so before."""

    async def work(hot: HotConnection) -> list[int]:
        await statements.end_job(hot, job_id=job_id)
        return await trigger_statements.take_from(hot, owner_ids=[job_id], reason="its triggerer lost its lease")

    if await database.retrying_hot(work):
        notifier.poke("triggers")


async def health(database: Database, settings: Settings, *, limit: float = HEALTH_LIMIT) -> dict[str, JobHealth]:
    """Health by job type, judged by progress: healthy while some process of the type made progress within its lease.

    Raises :class:`app.store.errors.DatabaseUnavailable` if the database does not tell within ``limit`` seconds, however
    busy this process's own connections are.
    """
    rows = await database.glance_aside(statements.unended_jobs, limit=limit)
    return {
        job_type: _judge(job_type, [row for row in rows if row.job_type == job_type], lease=settings.lease_seconds)
        for job_type in JOB_TYPES
    }


def _judge(job_type: str, rows: list[JobRow], *, lease: float) -> JobHealth:
    if not rows:
        return JobHealth(job_type=job_type, status=Health.NONE)
    # Progress is reported with the heartbeat, so it may be one heartbeat older than the heartbeat itself.
    alive = [row for row in rows if row.heartbeat_age <= lease]
    working = [row for row in alive if row.progress_age is not None and row.progress_age <= 2 * lease]
    shown = alive or rows
    return JobHealth(
        job_type=job_type,
        status=Health.HEALTHY if working else Health.UNHEALTHY,
        latest_heartbeat=max(row.latest_heartbeat for row in shown),
        latest_progress=max((row.latest_progress for row in shown if row.latest_progress is not None), default=None),
        processes=tuple(shown),
    )
