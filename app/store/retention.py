"""Statements that remove old rows, a window of them at a time.

A window is the next rows by age, whatever is to become of them: reading it is one look into an index, so that a
statement takes no longer where nothing may go. Which of its rows may go is decided under their locks; rows that
somebody else works on are left for another time. What may go once may go for ever: nothing here makes demand pending
again, a run unended or an identity younger.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from app.domain.retention import Kind, Place
from app.store.database import HotConnection

_WINDOWS = {
    Kind.RUNS: """
        SELECT id, end_date FROM dag_run
        WHERE end_date < $1::timestamptz
          AND (end_date, id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::bigint, 0))
        ORDER BY end_date, id LIMIT $4
    """,
    Kind.EVENTS: """
        SELECT id, "timestamp" FROM asset_event
        WHERE "timestamp" < $1::timestamptz
          AND ("timestamp", id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::bigint, 0))
        ORDER BY "timestamp", id LIMIT $4
    """,
    Kind.DEAD_LETTERS: """
        SELECT id, created_at FROM dead_letter
        WHERE created_at < $1::timestamptz
          AND (created_at, id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::bigint, 0))
        ORDER BY created_at, id LIMIT $4
    """,
    Kind.STATE_CHANGES: """
        SELECT id, at FROM state_change
        WHERE subject = 'trigger' AND at < $1::timestamptz
          AND (at, id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::bigint, 0))
        ORDER BY at, id LIMIT $4
    """,
}
_LOCKED = {True: " FOR UPDATE OF r SKIP LOCKED", False: ""}


async def use_short_locks(hot: HotConnection) -> None:
    """Wait for nobody for long in this transaction, and plan for the window at hand."""
    await hot.execute(
        "SELECT set_config('lock_timeout', '2s', true), set_config('plan_cache_mode', 'force_custom_plan', true)"
    )


async def read_clock(hot: HotConnection) -> datetime:
    """The server's clock."""
    now: datetime = await hot.fetchval("SELECT clock_timestamp()")
    return now


async def read_window(
    hot: HotConnection, *, kind: Kind, before: datetime, after: Place | None, limit: int
) -> tuple[list[int], Place | None]:
    """The next rows of a kind older than ``before``, and the last one's place; none: there are no more."""
    at, number = (after.at, after.id) if after is not None else (None, None)
    rows = await hot.fetch(_WINDOWS[kind], before, at, number, limit)
    return [row[0] for row in rows], Place(at=rows[-1][1], id=rows[-1][0]) if rows else None


_RUNS = """
    SELECT r.id FROM dag_run r
    WHERE r.id = ANY($1::bigint[]) AND r.state IN ('success', 'failed')
      AND NOT EXISTS (SELECT FROM task_instance t WHERE t.dag_run_id = r.id
                      AND t.state NOT IN ('success', 'failed', 'skipped', 'upstream_failed', 'removed'))
      AND NOT EXISTS (SELECT FROM task_instance t JOIN trigger g ON g.task_instance_id = t.id
                      WHERE t.dag_run_id = r.id)
      AND (r.run_type <> 'scheduled' OR r.logical_date IS NULL OR EXISTS (
              SELECT FROM dag_run n WHERE n.dag_id = r.dag_id AND n.run_type = 'scheduled'
              AND n.logical_date > r.logical_date))
    ORDER BY r.id
"""


async def removable_runs(hot: HotConnection, *, ids: Sequence[int], lock: bool) -> list[int]:
    """Those of the runs that have ended in every part. The latest scheduled run of a DAG stays: the next is counted
    from it, and ``@once`` knows by it that it was."""
    rows = await hot.fetch(
        _RUNS + _LOCKED[lock],
        ids,
    )
    return [row[0] for row in rows]


async def remove_runs(hot: HotConnection, *, ids: Sequence[int]) -> None:
    """Delete runs with their causes, task instances, XComs and changes of state. Their demand stays consumed."""
    await hot.execute(
        """
        DELETE FROM state_change
        WHERE (subject = 'run' AND subject_id = ANY($1::bigint[]))
           OR (subject = 'task'
               AND subject_id = ANY(ARRAY(SELECT id FROM task_instance WHERE dag_run_id = ANY($1::bigint[]))))
        """,
        ids,
    )
    await hot.execute("DELETE FROM dag_run WHERE id = ANY($1::bigint[])", ids)


_EVENTS = """
    SELECT r.id FROM asset_event r
    WHERE r.id = ANY($1::bigint[])
      AND NOT EXISTS (SELECT FROM dag_run_event c WHERE c.event_id = r.id)
      AND NOT EXISTS (SELECT FROM demand d WHERE d.event_id = r.id AND d.state IN ('pending', 'grouped'))
    ORDER BY r.id
"""


async def removable_events(hot: HotConnection, *, ids: Sequence[int], lock: bool) -> list[int]:
    """Those of the events that are the cause of no run there is, and that wait for no consumer."""
    rows = await hot.fetch(
        _EVENTS + _LOCKED[lock],
        ids,
    )
    return [row[0] for row in rows]


async def remove_events(hot: HotConnection, *, ids: Sequence[int]) -> None:
    """Delete events with what became of them for each consumer, and the bodies and started groups left without any.

    Bodies and groups are locked first: of two that delete the last two events of one, the second sees that.
    """
    bodies = await hot.fetchval(
        """
        SELECT array_agg(b.id) FROM (
            SELECT id FROM event_body WHERE id IN (SELECT body_id FROM asset_event WHERE id = ANY($1::bigint[]))
            ORDER BY id FOR UPDATE) AS b
        """,
        ids,
    )
    groups = await hot.fetchval(
        """
        SELECT array_agg(g.id) FROM (
            SELECT id FROM demand_group
            WHERE state = 'started' AND id IN (SELECT group_id FROM demand WHERE event_id = ANY($1::bigint[]))
            ORDER BY id FOR UPDATE) AS g
        """,
        ids,
    )
    await hot.execute("DELETE FROM demand WHERE event_id = ANY($1::bigint[])", ids)
    await hot.execute("DELETE FROM asset_event WHERE id = ANY($1::bigint[])", ids)
    await hot.execute(
        """
        DELETE FROM event_body b
        WHERE b.id = ANY($1::bigint[]) AND NOT EXISTS (SELECT FROM asset_event e WHERE e.body_id = b.id)
        """,
        bodies or [],
    )
    await hot.execute(
        """
        DELETE FROM demand_group g
        WHERE g.id = ANY($1::bigint[]) AND NOT EXISTS (SELECT FROM demand d WHERE d.group_id = g.id)
          AND NOT EXISTS (SELECT FROM dag_run r WHERE r.group_id = g.id)
        """,
        groups or [],
    )


_LETTERS = """
    SELECT r.id FROM dead_letter r
    WHERE r.id = ANY($1::bigint[])
      AND (r.identity IS NULL
           OR (r.created_at < $2::timestamptz
               AND NOT EXISTS (SELECT FROM trigger t WHERE t.id = r.trigger_id AND NOT t.acknowledges)))
    ORDER BY r.id
"""


async def removable_letters(hot: HotConnection, *, ids: Sequence[int], known_before: datetime, lock: bool) -> list[int]:
    """Those of the dead letters whose message would not be recognised by them any more (``known_before``), and whose
    source does not offer it again and again."""
    rows = await hot.fetch(
        _LETTERS + _LOCKED[lock],
        ids,
        known_before,
    )
    return [row[0] for row in rows]


async def remove_letters(hot: HotConnection, *, ids: Sequence[int]) -> None:
    """Delete dead letters."""
    await hot.execute("DELETE FROM dead_letter WHERE id = ANY($1::bigint[])", ids)


async def remove_changes(hot: HotConnection, *, ids: Sequence[int]) -> None:
    """Delete records of changes of state."""
    await hot.execute("DELETE FROM state_change WHERE id = ANY($1::bigint[])", ids)


_UPPER = {
    Kind.IDENTITIES: """
        SELECT max(w.created_at), count(*) FROM (
            SELECT created_at FROM event_identity
            WHERE created_at < $1::timestamptz AND created_at > coalesce($2::timestamptz, '-infinity')
            ORDER BY created_at LIMIT $3) AS w
    """,
    Kind.IDEMPOTENCY_KEYS: """
        SELECT max(w.created_at), count(*) FROM (
            SELECT created_at FROM idempotency_key
            WHERE created_at < $1::timestamptz AND created_at > coalesce($2::timestamptz, '-infinity')
            ORDER BY created_at LIMIT $3) AS w
    """,
}
#: An identity stays as long as its asset has a watcher whose source offers everything again at each start.
_FORGET = {
    Kind.IDENTITIES: """
        event_identity i
        WHERE i.created_at > coalesce($1::timestamptz, '-infinity') AND i.created_at <= $2::timestamptz
          AND NOT EXISTS (SELECT FROM asset_watcher w JOIN trigger t ON t.id = w.trigger_id
                          WHERE w.asset_id = i.asset_id AND NOT t.acknowledges)
    """,
    Kind.IDEMPOTENCY_KEYS: """
        idempotency_key i
        WHERE i.created_at > coalesce($1::timestamptz, '-infinity') AND i.created_at <= $2::timestamptz
    """,
}


async def read_upper(
    hot: HotConnection, *, kind: Kind, before: datetime, after: Place | None, limit: int
) -> tuple[Place | None, int]:
    """The moment up to which the next identities or keys reach, and how many they are; None: there are no more."""
    row = await hot.fetchrow(_UPPER[kind], before, after.at if after is not None else None, limit)
    return (Place(at=row[0]) if row[0] is not None else None), row[1]


async def forget(hot: HotConnection, *, kind: Kind, after: Place | None, until: Place, dry_run: bool) -> int:
    """Delete identities or keys made after one moment and not after another; how many (with ``dry_run``: would be)."""
    at = after.at if after is not None else None
    if dry_run:
        count: int = await hot.fetchval("SELECT count(*) FROM " + _FORGET[kind], at, until.at)  # noqa: S608 - of fixed parts
        return count
    status: str = await hot.execute("DELETE FROM " + _FORGET[kind], at, until.at)  # noqa: S608 - of fixed parts
    return int(status.rpartition(" ")[2])
