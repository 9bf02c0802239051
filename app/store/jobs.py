"""Statements about processes: their rows, session locks, heartbeats and ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.store.database import HotConnection
from app.store.tables.processes import JOB_LOCK_SPACE


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has not ended. Ages are seconds by the database's clock."""

    id: int
    job_type: str
    hostname: str
    pid: int
    capacity: int | None
    queues: list[str] | None
    team_name: str | None
    latest_heartbeat: datetime
    latest_progress: datetime | None
    heartbeat_age: float
    progress_age: float | None


#: Whether the session lock of row ``j`` is free ($2: lock space).
_IS_FREE = """
    NOT EXISTS (SELECT 1 FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.mode = 'ExclusiveLock'
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND l.classid::bigint = $2::bigint AND l.objid::bigint = j.id)
"""
#: Dead ($1: lease in seconds, $2: lock space; row ``j``): the lease ran out, for which nobody could do anything before
#: the server started; or the session lock is free although the server kept its sessions since the lock was held. It did
#: if ours is older than the last heartbeat: a server that recovers from the crash of one of its processes ends all
#: sessions and has the same start time as before.
IS_DEAD = f"""
    (greatest(j.latest_heartbeat, pg_postmaster_start_time()) < clock_timestamp() - make_interval(secs => $1::float8)
     OR (j.latest_heartbeat > (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())) AND {_IS_FREE}))
"""  # noqa: S608 - of fixed parts
#: $5: jobs whose lock this session saw held.
_END_DEAD = f"""
UPDATE job SET ended_at = clock_timestamp()
WHERE ended_at IS NULL AND id IN (
    SELECT j.id FROM job j
    WHERE j.job_type = $3 AND j.ended_at IS NULL AND j.id IS DISTINCT FROM $4::bigint
      AND ({IS_DEAD} OR (j.id = ANY($5::bigint[]) AND {_IS_FREE}))
    FOR NO KEY UPDATE OF j SKIP LOCKED)
RETURNING id
"""  # noqa: S608 - of fixed parts


async def insert_job(
    session: HotConnection,
    *,
    job_type: str,
    hostname: str,
    pid: int,
    capacity: int | None,
    queues: Sequence[str] | None,
    team_name: str | None,
) -> int:
    """Add the row and take its session lock in one transaction: nobody sees the row without the lock."""
    async with session.transaction():
        job_id: int = await session.fetchval(
            """
            INSERT INTO job (job_type, hostname, pid, capacity, queues, team_name, latest_heartbeat, latest_progress)
            VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp()) RETURNING id
            """,
            job_type,
            hostname,
            pid,
            capacity,
            None if queues is None else list(queues),
            team_name,
        )
        await session.execute("SELECT pg_advisory_lock($1::int, $2::int)", JOB_LOCK_SPACE, job_id)
    return job_id


async def hold_job_lock(session: HotConnection, *, job_id: int) -> bool:
    """Take the session lock again on a new connection; False if another session still has it."""
    held: bool = await session.fetchval("SELECT pg_try_advisory_lock($1::int, $2::int)", JOB_LOCK_SPACE, job_id)
    return held


async def heartbeat(session: HotConnection, *, job_id: int, progress_age: float, details: str | None = None) -> bool:
    """Renew the lease and say how many seconds ago there was progress. False: somebody declared this process dead.

    ``details`` (JSON text) take the place of what was told before; None changes nothing.
    """
    row = await session.fetchrow(
        """
        UPDATE job SET latest_heartbeat = clock_timestamp(),
                       latest_progress = greatest(latest_progress,
                                                  clock_timestamp() - make_interval(secs => $2::float8)),
                       details = coalesce($3::json, details)
        WHERE id = $1::bigint AND ended_at IS NULL RETURNING id
        """,
        job_id,
        progress_age,
        details,
    )
    return row is not None


async def end_job(hot: HotConnection, *, job_id: int) -> None:
    """The process ended by itself, or gave up its lease."""
    await hot.execute("UPDATE job SET ended_at = clock_timestamp() WHERE id = $1::bigint AND ended_at IS NULL", job_id)


async def end_dead_jobs(
    hot: HotConnection, *, job_type: str, lease: float, except_id: int | None, seen_alive: Sequence[int] = ()
) -> list[int]:
    """End the rows of dead processes of this type and return their ids. ``lease`` is in seconds.

    ``seen_alive`` are jobs whose lock was held, as seen by this very session: free now, its process is gone.
    """
    rows = await hot.fetch(_END_DEAD, lease, JOB_LOCK_SPACE, job_type, except_id, list(seen_alive))
    return [row[0] for row in rows]


async def neighbour_of(session: HotConnection, *, job_type: str, job_id: int) -> tuple[int, bool] | None:
    """The next older process of this type, for the oldest the youngest, and whether its session lock is held.

    Whoever waits for its neighbour is part of a ring in which each process is waited for, by one session.
    """
    row = await session.fetchrow(
        f"""
        SELECT j.id, NOT ({_IS_FREE})
        FROM job j WHERE j.job_type = $1 AND j.ended_at IS NULL AND j.id <> $3::bigint
        ORDER BY j.id < $3::bigint DESC, j.id DESC LIMIT 1
        """,  # noqa: S608 - of fixed parts
        job_type,
        JOB_LOCK_SPACE,
        job_id,
    )
    return None if row is None else (row[0], row[1])


async def await_job_lock(session: HotConnection, *, job_id: int, within: float) -> None:
    """Return as soon as nobody holds the session lock of the job, or after ``within`` seconds.

    The lock is let go with the statement. A waiting statement keeps the server from cleaning up what it might still
    see, so nobody may wait for long at once; a caught time-out, unlike a cancelled statement, is no line in the
    server's log.
    """
    await session.execute(
        f"""
        DO $$ BEGIN
            PERFORM set_config('lock_timeout', '{int(within * 1000)}', true);
            PERFORM pg_advisory_xact_lock_shared({JOB_LOCK_SPACE}, {int(job_id)});
        EXCEPTION WHEN lock_not_available THEN NULL;
        END $$
        """
    )


async def end_silent_jobs(hot: HotConnection, *, job_types: Sequence[str], silence: float) -> list[int]:
    """End the rows of processes of these types without a heartbeat for ``silence`` seconds of the server running."""
    rows = await hot.fetch(
        """
        UPDATE job SET ended_at = clock_timestamp()
        WHERE ended_at IS NULL AND job_type = ANY($1::text[])
          AND greatest(latest_heartbeat, pg_postmaster_start_time())
              < clock_timestamp() - make_interval(secs => $2::float8)
        RETURNING id
        """,
        job_types,
        silence,
    )
    return [row[0] for row in rows]


async def ended_owners(hot: HotConnection) -> list[int]:
    """Ended jobs that still own triggers."""
    rows = await hot.fetch(
        """
        SELECT DISTINCT t.owner_id FROM trigger t JOIN job j ON j.id = t.owner_id
        WHERE t.owner_id IS NOT NULL AND j.ended_at IS NOT NULL
        """
    )
    return [row[0] for row in rows]


async def unended_jobs(hot: HotConnection) -> list[JobRow]:
    """Every process that has not ended, as far as its row knows."""
    rows = await hot.fetch(
        """
        SELECT id, job_type, hostname, pid, capacity, queues, team_name, latest_heartbeat, latest_progress,
               extract(epoch FROM clock_timestamp() - latest_heartbeat)::float8,
               extract(epoch FROM clock_timestamp() - latest_progress)::float8
        FROM job WHERE ended_at IS NULL ORDER BY job_type, id
        """
    )
    names = (
        "id", "job_type", "hostname", "pid", "capacity", "queues", "team_name", "latest_heartbeat", "latest_progress",
        "heartbeat_age", "progress_age",
    )  # fmt: skip
    return [JobRow(**dict(zip(names, row, strict=True))) for row in rows]
