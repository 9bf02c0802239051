"""Statements about demand and its groups: what of a DAG's events waits, is grouped, or was given up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.domain.demand import Arrival
from app.domain.states import GroupState
from app.store.database import HotConnection


class LockedDag(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG's row under its lock. ``now`` is the database's clock after the lock was taken."""

    dag_id: str
    is_paused: bool
    is_active: bool
    current_version_id: int | None
    max_active_runs: int
    last_group: int
    has_demand: bool
    next_run_at: datetime | None
    next_logical_date: datetime | None
    now: datetime


class OpenGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A batch still collecting."""

    id: int
    events: int
    closes_at: datetime | None


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a DAG has going: active runs, runs waiting to start, closed groups waiting (100 at most), an open batch."""

    running: int
    queued: int
    ready: int
    warned: bool
    collecting: OpenGroup | None


class NewGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group about to be stored, with its events."""

    position: int
    state: GroupState
    closes_at: datetime | None
    event_ids: tuple[int, ...]


async def read_candidates(hot: HotConnection) -> list[str]:
    """DAGs, not paused, with unplanned demand, a due batch or a run to start, and room for another run."""
    rows = await hot.fetch(
        """
        WITH stirred AS (
            SELECT dag_id FROM dag WHERE has_demand
            UNION SELECT dag_id FROM demand_group WHERE state = 'collecting' AND closes_at <= clock_timestamp()
            UNION SELECT dag_id FROM dag_run WHERE state = 'queued' AND run_after <= clock_timestamp()
        )
        SELECT d.dag_id FROM dag d JOIN stirred USING (dag_id)
        WHERE d.is_active AND NOT d.is_paused
          AND d.max_active_runs > (SELECT count(*) FROM dag_run r WHERE r.dag_id = d.dag_id AND r.state = 'running')
        ORDER BY d.dag_id
        """
    )
    return [row[0] for row in rows]


_LOCK_DAG = """
    SELECT dag_id, is_paused, is_active, current_version_id, max_active_runs, last_group, has_demand,
           next_run_at, next_logical_date, clock_timestamp() AS now
    FROM dag WHERE dag_id = $1 FOR NO KEY UPDATE
"""


async def lock_dag(hot: HotConnection, *, dag_id: str, patience: float | None) -> LockedDag | None:
    """Take the row lock that orders a DAG's demand. None: no such DAG, or somebody holds the lock.

    ``patience`` is how many seconds to wait for it; None does not wait. The lock does not hinder rows that refer to the
    DAG.

    Raises:
        Conflict: The patience ran out.
    """
    if patience is None:
        row = await hot.fetchrow(_LOCK_DAG + " SKIP LOCKED", dag_id)
    else:
        await hot.execute(f"SET LOCAL lock_timeout = {int(patience * 1000)}")
        row = await hot.fetchrow(_LOCK_DAG, dag_id)
        await hot.execute("SET LOCAL lock_timeout = 0")
    return LockedDag(**dict(row)) if row is not None else None


async def read_situation(hot: HotConnection, *, dag_id: str) -> Situation:
    """What decides how much may be planned and started."""
    row = await hot.fetchrow(
        """
        SELECT (SELECT count(*) FROM dag_run WHERE dag_id = $1 AND state = 'running') AS running,
               (SELECT count(*) FROM dag_run
                WHERE dag_id = $1 AND state = 'queued' AND run_after <= clock_timestamp()) AS queued,
               (SELECT count(*) FROM (SELECT FROM demand_group WHERE dag_id = $1 AND state = 'ready' LIMIT 100) AS r)
                   AS ready,
               EXISTS (SELECT FROM dag_warning WHERE dag_id = $1 AND warning_type = 'planning') AS warned,
               g.id, g.events, g.closes_at
        FROM (SELECT) AS one
        LEFT JOIN demand_group g ON g.dag_id = $1 AND g.state = 'collecting'
        """,
        dag_id,
    )
    collecting = None
    if row["id"] is not None:
        collecting = OpenGroup(id=row["id"], events=row["events"], closes_at=row["closes_at"])
    return Situation(
        running=row["running"],
        queued=row["queued"],
        ready=row["ready"],
        warned=row["warned"],
        collecting=collecting,
    )


async def read_pending(hot: HotConnection, *, dag_id: str) -> list[Arrival[int]]:
    """All pending demand of a DAG in its order. Complete only under the DAG's row lock."""
    rows = await hot.fetch(
        "SELECT arrival, event_id, asset_id, created_at FROM demand WHERE dag_id = $1 AND state = 'pending' ORDER BY 1",
        dag_id,
    )
    return [Arrival(position=row[0], event_id=row[1], asset=row[2], at=row[3]) for row in rows]


async def read_scheduled_assets(hot: HotConnection, *, dag_id: str) -> dict[tuple[str, str], int]:
    """Ids of the assets a DAG is scheduled on, by name and uri."""
    rows = await hot.fetch(
        """
        SELECT a.name, a.uri, a.id FROM asset_reference r JOIN asset a ON a.id = r.asset_id
        WHERE r.dag_id = $1 AND r.kind = 'schedule'
        """,
        dag_id,
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def insert_groups(hot: HotConnection, *, dag_id: str, groups: Sequence[NewGroup]) -> int:
    """Store groups and mark their demand as grouped; how many events that was."""
    members = [(event_id, group.position) for group in groups for event_id in group.event_ids]
    count: int = await hot.fetchval(
        """
        WITH made AS (
            INSERT INTO demand_group (dag_id, position, state, events, closes_at)
            SELECT $1, g.* FROM unnest($2::bigint[], $3::text[], $4::int[], $5::timestamptz[]) AS g
            RETURNING id, position
        ), grouped AS (
            UPDATE demand d SET state = 'grouped', group_id = made.id
            FROM unnest($6::bigint[], $7::bigint[]) AS m(event_id, position) JOIN made USING (position)
            WHERE d.dag_id = $1 AND d.event_id = m.event_id AND d.state = 'pending'
            RETURNING 1
        )
        SELECT count(*) FROM grouped
        """,
        dag_id,
        [group.position for group in groups],
        [group.state for group in groups],
        [len(group.event_ids) for group in groups],
        [group.closes_at for group in groups],
        [event_id for event_id, _ in members],
        [position for _, position in members],
    )
    return count


async def extend_group(
    hot: HotConnection, *, dag_id: str, group_id: int, event_ids: Sequence[int], closed: bool
) -> int:
    """Add events to an open batch and close it if ``closed``; how many events were added."""
    count: int = await hot.fetchval(
        """
        WITH extended AS (
            UPDATE demand_group SET events = events + cardinality($3::bigint[]),
                                    state = CASE WHEN $4 THEN 'ready' ELSE 'collecting' END
            WHERE id = $2 AND dag_id = $1 AND state = 'collecting' RETURNING id
        ), grouped AS (
            UPDATE demand d SET state = 'grouped', group_id = extended.id FROM extended
            WHERE d.dag_id = $1 AND d.event_id = ANY($3::bigint[]) AND d.state = 'pending' RETURNING 1
        )
        SELECT count(*) FROM grouped
        """,
        dag_id,
        group_id,
        event_ids,
        closed,
    )
    return count


async def finish_planning(hot: HotConnection, *, dag_id: str, last_group: int, has_demand: bool) -> None:
    """Note what was planned. Under the DAG's row lock no demand can have arrived unseen."""
    await hot.execute(
        "UPDATE dag SET last_group = $2, has_demand = $3 WHERE dag_id = $1", dag_id, last_group, has_demand
    )


async def stir(hot: HotConnection, *, dag_id: str) -> None:
    """Have the DAG's demand looked at again."""
    await hot.execute("UPDATE dag SET has_demand = true WHERE dag_id = $1", dag_id)


async def drop_outside(hot: HotConnection, *, dag_id: str, asset_ids: Sequence[int], reason: str) -> int:
    """Drop waiting demand of a DAG for assets other than these; how much that was."""
    status: str = await hot.execute(
        """
        UPDATE demand SET state = 'dropped', group_id = NULL, reason = $3
        WHERE dag_id = $1 AND NOT asset_id = ANY($2::bigint[]) AND state IN ('pending', 'grouped')
        """,
        dag_id,
        asset_ids,
        reason,
    )
    return _count(status)


async def drop_queued(
    hot: HotConnection, *, dag_id: str, asset_id: int | None, before: datetime | None, reason: str
) -> int:
    """Drop waiting demand of a DAG (of one asset or all, stored before a moment or all); how much that was."""
    status: str = await hot.execute(
        """
        UPDATE demand SET state = 'dropped', group_id = NULL, reason = $4
        WHERE dag_id = $1 AND ($2::bigint IS NULL OR asset_id = $2)
          AND ($3::timestamptz IS NULL OR created_at < $3) AND state IN ('pending', 'grouped')
        """,
        dag_id,
        asset_id,
        before,
        reason,
    )
    return _count(status)


def _count(status: str) -> int:
    """The number of rows in the server's command status, ``UPDATE 5``."""
    return int(status.rpartition(" ")[2])


async def dissolve_groups(hot: HotConnection, *, dag_id: str) -> int:
    """Take apart all groups that wait, so that their events are grouped anew. Call it under the DAG's row lock."""
    await hot.execute(
        """
        UPDATE demand d SET state = 'pending', group_id = NULL FROM demand_group g
        WHERE g.dag_id = $1 AND g.state <> 'started' AND d.group_id = g.id AND d.dag_id = $1 AND d.state = 'grouped'
        """,
        dag_id,
    )
    status: str = await hot.execute("DELETE FROM demand_group WHERE dag_id = $1 AND state <> 'started'", dag_id)
    return _count(status)


async def read_waiting_consumers(hot: HotConnection, *, asset_id: int | None) -> list[str]:
    """DAGs with waiting demand for an asset, or for any."""
    rows = await hot.fetch(
        """
        SELECT DISTINCT d.dag_id FROM dag d JOIN demand w USING (dag_id)
        WHERE ($1::bigint IS NULL OR w.asset_id = $1) AND w.state IN ('pending', 'grouped') ORDER BY 1
        """,
        asset_id,
    )
    return [row[0] for row in rows]


async def set_planning_warning(hot: HotConnection, *, dag_id: str, message: str) -> None:
    """Show at the DAG why its demand cannot be planned."""
    await hot.execute(
        """
        INSERT INTO dag_warning (dag_id, warning_type, message)
        SELECT dag_id, 'planning', $2 FROM dag WHERE dag_id = $1
        ON CONFLICT (dag_id, warning_type) DO UPDATE SET message = EXCLUDED.message, "timestamp" = now()
        """,
        dag_id,
        message,
    )


async def clear_planning_warning(hot: HotConnection, *, dag_id: str) -> None:
    """Its demand is planned again."""
    await hot.execute("DELETE FROM dag_warning WHERE dag_id = $1 AND warning_type = 'planning'", dag_id)


async def read_next_moment(hot: HotConnection, *, after: datetime | None) -> tuple[datetime, float | None]:
    """The database's clock, and the seconds from it to the next thing that happens by the clock after ``after``.

    That is: a batch closes, a run by the clock or a retry is due. What was due before ``after`` has been looked at and
    waits for something else. None: nothing is due.
    """
    row = await hot.fetchrow(
        """
        WITH c AS (SELECT clock_timestamp() AS now, coalesce($1::timestamptz, '-infinity') AS since)
        SELECT c.now, extract(epoch FROM least(
            (SELECT min(closes_at) FROM demand_group WHERE state = 'collecting' AND closes_at > c.since),
            (SELECT min(next_run_at) FROM dag WHERE next_run_at > c.since AND is_active AND NOT is_paused),
            (SELECT min(next_attempt_at) FROM task_instance WHERE next_attempt_at > c.since),
            (SELECT min(run_after) FROM dag_run WHERE state = 'queued' AND run_after > c.since)
        ) - c.now)::float8
        FROM c
        """,
        after,
    )
    return row[0], row[1]
