"""Processes: their leases (:class:`JobSession`), the end of dead ones, and their health."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from app.kernel.settings import Settings
from app.services.job_sessions import JobSession
from app.store import jobs as statements
from app.store import shares as share_statements
from app.store import triggers as trigger_statements
from app.store.database import Database, HotConnection
from app.store.jobs import JobRow
from app.store.shares import UnservedRow
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


class ProcessHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of one process. ``held`` is how many triggers a triggerer has, of ``capacity``."""

    id: int
    job_type: str
    hostname: str
    pid: int
    status: Health
    latest_heartbeat: datetime
    latest_progress: datetime | None
    capacity: int | None = None
    held: int | None = None
    queues: tuple[str, ...] | None = None
    team_name: str | None = None


class JobHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of one job type; ``processes`` are those that have not ended, dead ones beside a live one left out.

    ``unserved`` are triggers that wait although they are wanted, because no live triggerer serves their queue and team.
    """

    job_type: str
    status: Health
    latest_heartbeat: datetime | None = None
    latest_progress: datetime | None = None
    processes: tuple[ProcessHealth, ...] = ()
    unserved: tuple[UnservedRow, ...] = ()


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
    lease = settings.lease_seconds

    async def look(hot: HotConnection) -> tuple[list[JobRow], dict[int, int], list[UnservedRow]]:
        rows = await statements.unended_jobs(hot)
        return rows, await share_statements.held_by_owner(hot), await share_statements.unserved(hot, lease=lease)

    rows, held, unserved = await database.glance_aside(look, limit=limit)
    found = {
        job_type: _judge(job_type, [row for row in rows if row.job_type == job_type], lease=lease, held=held)
        for job_type in JOB_TYPES
    }
    return found | {"triggerer": msgspec.structs.replace(found["triggerer"], unserved=tuple(unserved))}


def _judge(job_type: str, rows: list[JobRow], *, lease: float, held: Mapping[int, int]) -> JobHealth:
    if not rows:
        return JobHealth(job_type=job_type, status=Health.NONE)
    shown = [row for row in rows if row.heartbeat_age <= lease] or rows
    processes = tuple(_process(row, lease=lease, held=held) for row in shown)
    return JobHealth(
        job_type=job_type,
        status=Health.HEALTHY if any(each.status is Health.HEALTHY for each in processes) else Health.UNHEALTHY,
        latest_heartbeat=max(row.latest_heartbeat for row in shown),
        latest_progress=max((row.latest_progress for row in shown if row.latest_progress is not None), default=None),
        processes=processes,
    )


def _process(row: JobRow, *, lease: float, held: Mapping[int, int]) -> ProcessHealth:
    # Progress is reported with the heartbeat, so it may be one heartbeat older than the heartbeat itself.
    works = row.heartbeat_age <= lease and row.progress_age is not None and row.progress_age <= 2 * lease
    return ProcessHealth(
        id=row.id,
        job_type=row.job_type,
        hostname=row.hostname,
        pid=row.pid,
        status=Health.HEALTHY if works else Health.UNHEALTHY,
        latest_heartbeat=row.latest_heartbeat,
        latest_progress=row.latest_progress,
        capacity=row.capacity,
        held=held.get(row.id, 0) if row.job_type == "triggerer" else None,
        queues=None if row.queues is None else tuple(row.queues),
        team_name=row.team_name,
    )
