"""Statements about how the triggers of a team are spread over its triggerers, and what nobody serves."""

from __future__ import annotations

import msgspec

from app.store.database import HotConnection


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """A live triggerer; ``heartbeat_age`` in seconds."""

    id: int
    capacity: int
    queues: list[str] | None
    heartbeat_age: float


class CountRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many triggers of a queue an owner has; without an owner, how many are wanted and free."""

    owner_id: int | None
    queue: str | None
    count: int


class UnservedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Triggers that wait because no live triggerer serves their queue and team."""

    queue: str | None
    team_name: str | None
    count: int


_UNSERVED = """
SELECT t.queue, t.team_name, count(*) FROM trigger t
WHERE t.status = 'unassigned' AND t.wanted AND NOT EXISTS (
        SELECT 1 FROM job j
        WHERE j.job_type = 'triggerer' AND j.ended_at IS NULL
          AND greatest(j.latest_heartbeat, pg_postmaster_start_time())
              >= clock_timestamp() - make_interval(secs => $1::float8)
          AND CASE WHEN j.queues IS NULL THEN t.queue IS NULL ELSE t.queue = ANY(j.queues) END
          AND j.team_name IS NOT DISTINCT FROM t.team_name)
GROUP BY t.queue, t.team_name ORDER BY t.team_name NULLS FIRST, t.queue NULLS FIRST
"""


async def members(hot: HotConnection, *, team_name: str | None, lease: float) -> list[MemberRow]:
    """The triggerers of a team whose lease (in seconds) is not over."""
    rows = await hot.fetch(
        """
        SELECT id, coalesce(capacity, 0), queues, extract(epoch FROM clock_timestamp() - latest_heartbeat)::float8
        FROM job
        WHERE job_type = 'triggerer' AND ended_at IS NULL AND team_name IS NOT DISTINCT FROM $1::text
          AND latest_heartbeat >= clock_timestamp() - make_interval(secs => $2::float8)
        ORDER BY id
        """,
        team_name,
        lease,
    )
    return [MemberRow(id=row[0], capacity=row[1], queues=row[2], heartbeat_age=row[3]) for row in rows]


async def counts(hot: HotConnection, *, team_name: str | None) -> list[CountRow]:
    """How many triggers of a team each owner has of each queue, and how many of each are free."""
    rows = await hot.fetch(
        """
        SELECT owner_id, queue, count(*) FROM trigger
        WHERE owner_id IS NOT NULL AND team_name IS NOT DISTINCT FROM $1::text GROUP BY owner_id, queue
        UNION ALL
        SELECT NULL, queue, count(*) FROM trigger
        WHERE status = 'unassigned' AND wanted AND team_name IS NOT DISTINCT FROM $1::text GROUP BY queue
        """,
        team_name,
    )
    return [CountRow(owner_id=row[0], queue=row[1], count=row[2]) for row in rows]


async def held_by_owner(hot: HotConnection) -> dict[int, int]:
    """How many triggers each owner has."""
    rows = await hot.fetch("SELECT owner_id, count(*) FROM trigger WHERE owner_id IS NOT NULL GROUP BY owner_id")
    return {row[0]: row[1] for row in rows}


async def unserved(hot: HotConnection, *, lease: float) -> list[UnservedRow]:
    """What waits for a triggerer that is not there, by queue and team. ``lease`` is in seconds."""
    rows = await hot.fetch(_UNSERVED, lease)
    return [UnservedRow(queue=row[0], team_name=row[1], count=row[2]) for row in rows]
