"""Statements about task instances: claimed, started, ended, given back. Transitions are guarded by owner and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.domain.states import TaskState
from app.store.database import HotConnection

#: Space of the advisory locks under which a DAG's limit of active tasks is counted.
CLAIM_LOCK_SPACE = 7302


class ClaimedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A task instance just claimed, with its run. ``conf`` is JSON text."""

    id: int
    epoch: int
    dag_run_id: int
    task_id: str
    map_index: int
    try_number: int
    max_tries: int
    dag_id: str
    run_id: str
    run_type: str
    run_after: datetime
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    start_date: datetime | None
    conf: str
    dag_version_id: int


class CauseRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event that caused a run. ``extra`` is JSON text."""

    dag_run_id: int
    event_id: int
    name: str
    uri: str
    extra: str
    timestamp: datetime
    source_dag_id: str | None
    source_task_id: str | None
    source_run_id: str | None
    source_map_index: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ends. ``next_attempt_at`` is set exactly for ``up_for_retry``."""

    id: int
    epoch: int
    state: TaskState
    next_attempt_at: datetime | None = None
    note: str | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was ended."""

    id: int
    dag_run_id: int
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: TaskState


class OwnedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as its owner holds it."""

    id: int
    epoch: int
    owner_id: int
    state: TaskState
    try_number: int
    max_tries: int


async def lock_claimable_dags(hot: HotConnection) -> tuple[dict[str, int], list[str]]:
    """DAGs, not paused, with scheduled tasks: those now locked by this transaction (with how many), and the others.

    The others are being claimed from by another executor at this moment. A statement of its own: the claim that follows
    then counts active tasks after the locks were taken.
    """
    rows = await hot.fetch(
        """
        WITH waiting AS MATERIALIZED (
            SELECT t.dag_id, count(*) AS tasks FROM task_instance t JOIN dag d USING (dag_id)
            WHERE t.state = 'scheduled' AND NOT d.is_paused GROUP BY t.dag_id
        )
        SELECT dag_id, tasks, pg_try_advisory_xact_lock($1::int, hashtext(dag_id)) FROM waiting ORDER BY dag_id
        """,
        CLAIM_LOCK_SPACE,
    )
    return {row[0]: row[1] for row in rows if row[2]}, [row[0] for row in rows if not row[2]]


async def wait_for_claims(hot: HotConnection, *, dag_id: str, patience: float) -> None:
    """Wait until nobody else is claiming from a DAG. Only for a transaction that holds no such lock yet.

    Raises:
        Conflict: That took longer than ``patience`` seconds.
    """
    await hot.execute(f"SET LOCAL lock_timeout = {int(patience * 1000)}")
    await hot.execute("SELECT pg_advisory_xact_lock($1::int, hashtext($2))", CLAIM_LOCK_SPACE, dag_id)
    await hot.execute("SET LOCAL lock_timeout = 0")


_CLAIM = """
WITH room AS MATERIALIZED (
    SELECT d.dag_id, d.max_active_tasks,
           (SELECT count(*) FROM task_instance a
            WHERE a.dag_id = d.dag_id AND a.state IN ('queued', 'running')) AS active
    FROM dag d WHERE d.dag_id = ANY($2::text[]) AND NOT d.is_paused
), ranked AS (
    SELECT t.id, t.priority_weight, t.scheduled_at, room.active, room.max_active_tasks,
           row_number() OVER (PARTITION BY t.dag_id ORDER BY t.priority_weight DESC, t.scheduled_at, t.id) AS place
    FROM room JOIN task_instance t ON t.dag_id = room.dag_id AND t.state = 'scheduled'
), chosen AS (
    SELECT id, row_number() OVER (ORDER BY priority_weight DESC, active + place, scheduled_at, id) AS turn
    FROM ranked WHERE active + place <= max_active_tasks ORDER BY turn LIMIT $3
), picked AS (
    SELECT t.id, chosen.turn FROM task_instance t JOIN chosen USING (id)
    WHERE t.state = 'scheduled' FOR NO KEY UPDATE OF t SKIP LOCKED
), claimed AS (
    UPDATE task_instance t SET state = 'queued', owner_id = $1, epoch = t.epoch + 1, queued_at = now()
    FROM picked WHERE t.id = picked.id AND t.state = 'scheduled'
    RETURNING t.id, t.epoch, t.dag_run_id, t.task_id, t.map_index, t.try_number, t.max_tries, picked.turn
), changes AS (
    INSERT INTO state_change (subject, subject_id, from_state, to_state, try_number)
    SELECT 'task', id, 'scheduled', 'queued', try_number FROM claimed
)
SELECT c.id, c.epoch, c.dag_run_id, c.task_id, c.map_index, c.try_number, c.max_tries, r.dag_id, r.run_id, r.run_type,
       r.run_after, r.logical_date, r.data_interval_start, r.data_interval_end, r.start_date, r.conf::text AS conf,
       r.dag_version_id
FROM claimed c JOIN dag_run r ON r.id = c.dag_run_id ORDER BY c.turn
"""


async def claim(hot: HotConnection, *, owner_id: int, dag_ids: Sequence[str], limit: int) -> list[ClaimedInstance]:
    """Claim scheduled tasks of these DAGs (``scheduled → queued``), within each DAG's limit of active tasks.

    By priority; among equals the DAG with the fewest active tasks is next, and within it who has waited longest.
    """
    rows = await hot.fetch(_CLAIM, owner_id, dag_ids, limit)
    return [ClaimedInstance(**dict(row)) for row in rows]


async def read_causes(hot: HotConnection, *, run_keys: Sequence[int]) -> dict[int, list[CauseRow]]:
    """The events that caused these runs, each run's in its DAG's order."""
    rows = await hot.fetch(
        """
        SELECT c.dag_run_id, c.event_id, a.name, a.uri, b.extra::text AS extra, e."timestamp",
               e.source_dag_id, e.source_task_id, e.source_run_id, e.source_map_index
        FROM dag_run_event c
        JOIN asset_event e ON e.id = c.event_id JOIN asset a ON a.id = e.asset_id JOIN event_body b ON b.id = e.body_id
        LEFT JOIN demand d ON d.dag_id = c.dag_id AND d.event_id = c.event_id
        WHERE c.dag_run_id = ANY($1::bigint[]) ORDER BY c.dag_run_id, d.arrival, c.event_id
        """,
        run_keys,
    )
    found: dict[int, list[CauseRow]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(CauseRow(**dict(row)))
    return found


async def read_states(hot: HotConnection, *, run_keys: Sequence[int]) -> dict[int, dict[str, str]]:
    """States of the tasks of runs, by run and task."""
    rows = await hot.fetch(
        "SELECT dag_run_id, task_id, state FROM task_instance WHERE dag_run_id = ANY($1::bigint[]) ORDER BY id",
        run_keys,
    )
    found: dict[int, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row[0], {})[row[1]] = row[2]
    return found


async def mark_running(
    hot: HotConnection,
    *,
    owner_id: int,
    attempts: Sequence[tuple[int, int, int | None]],
    hostname: str | None = None,
) -> set[int]:
    """``queued → running`` for attempts ``(id, epoch, pid)`` of this owner; the ids for which it still held.

    Those of them that are running already are among the ids: the answer to an earlier call may have been lost.
    """
    rows = await hot.fetch(
        """
        WITH started AS (
            UPDATE task_instance t
            SET state = 'running', start_date = coalesce(t.start_date, now()), pid = a.pid, hostname = $5
            FROM unnest($2::bigint[], $3::bigint[], $4::int[]) AS a(id, epoch, pid)
            WHERE t.id = a.id AND t.epoch = a.epoch AND t.owner_id = $1 AND t.state = 'queued'
            RETURNING t.id, t.try_number
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state, try_number)
            SELECT 'task', id, 'queued', 'running', try_number FROM started
        )
        SELECT id FROM started
        UNION ALL
        SELECT t.id FROM task_instance t JOIN unnest($2::bigint[], $3::bigint[]) AS a(id, epoch) USING (id, epoch)
        WHERE t.owner_id = $1 AND t.state = 'running'
        """,
        owner_id,
        [attempt[0] for attempt in attempts],
        [attempt[1] for attempt in attempts],
        [attempt[2] for attempt in attempts],
        hostname,
    )
    return {row[0] for row in rows}


async def end_attempts(
    hot: HotConnection, *, owner_id: int, ends: Sequence[End], from_state: TaskState, now: datetime
) -> list[Ended]:
    """End attempts of this owner that are in ``from_state``; those for which owner, epoch and state still held."""
    rows = await hot.fetch(
        """
        WITH ended AS (
            UPDATE task_instance t
            SET state = e.state, owner_id = NULL, next_attempt_at = e.next_attempt_at, note = e.note,
                end_date = CASE WHEN e.state <> 'up_for_retry' THEN $7::timestamptz END
            FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[], $6::text[])
                 AS e(id, epoch, state, next_attempt_at, note)
            WHERE t.id = e.id AND t.epoch = e.epoch AND t.owner_id = $1 AND t.state = $8
            RETURNING t.id, t.dag_run_id, t.dag_id, t.run_id, t.task_id, t.map_index, t.state, t.try_number, t.note
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state, try_number, reason)
            SELECT 'task', id, $8, state, try_number, note FROM ended
        )
        SELECT id, dag_run_id, dag_id, run_id, task_id, map_index, state FROM ended
        """,
        owner_id,
        [end.id for end in ends],
        [end.epoch for end in ends],
        [end.state for end in ends],
        [end.next_attempt_at for end in ends],
        [end.note for end in ends],
        now,
        from_state,
    )
    return [Ended(**{**dict(row), "state": TaskState(row["state"])}) for row in rows]


async def give_back(
    hot: HotConnection,
    *,
    owner_id: int,
    attempts: Sequence[tuple[int, int]] | None,
    but: Sequence[tuple[int, int]] = (),
) -> list[int]:
    """``queued → scheduled``: attempts ``(id, epoch)`` of this owner (None: all ``but`` some) that have not started."""
    rows = await hot.fetch(
        """
        WITH returned AS (
            UPDATE task_instance t SET state = 'scheduled', owner_id = NULL, queued_at = NULL
            WHERE t.owner_id = $1 AND t.state = 'queued'
              AND ($2::bigint[] IS NULL OR (t.id, t.epoch) IN (SELECT * FROM unnest($2::bigint[], $3::bigint[])))
              AND (t.id, t.epoch) NOT IN (SELECT * FROM unnest($4::bigint[], $5::bigint[]))
            RETURNING t.id, t.try_number
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state, try_number, reason)
            SELECT 'task', id, 'queued', 'scheduled', try_number, 'given back before it started' FROM returned
        )
        SELECT id FROM returned
        """,
        owner_id,
        None if attempts is None else [attempt[0] for attempt in attempts],
        None if attempts is None else [attempt[1] for attempt in attempts],
        [attempt[0] for attempt in but],
        [attempt[1] for attempt in but],
    )
    return [row[0] for row in rows]


async def requeue_due(hot: HotConnection, *, limit: int) -> list[int]:
    """Waiting tasks whose time has come: scheduled again, a retry as the next try without what the last try left."""
    rows = await hot.fetch(
        """
        WITH due AS (
            SELECT id, state FROM task_instance WHERE next_attempt_at <= clock_timestamp()
            ORDER BY next_attempt_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
        ), again AS (
            UPDATE task_instance t
            SET state = 'scheduled', scheduled_at = now(), next_attempt_at = NULL,
                try_number = t.try_number + (due.state = 'up_for_retry')::int,
                start_date = CASE WHEN due.state <> 'up_for_retry' THEN t.start_date END
            FROM due WHERE t.id = due.id AND t.state IN ('up_for_retry', 'up_for_reschedule')
            RETURNING t.id, t.dag_run_id, t.task_id, t.map_index, t.try_number, due.state AS from_state
        ), forgotten AS (
            DELETE FROM xcom x USING again
            WHERE again.from_state = 'up_for_retry' AND x.dag_run_id = again.dag_run_id
              AND x.task_id = again.task_id AND x.map_index = again.map_index
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state, try_number)
            SELECT 'task', id, from_state, 'scheduled', try_number FROM again
        )
        SELECT id FROM again
        """,
        limit,
    )
    return [row[0] for row in rows]


async def read_owned(hot: HotConnection, *, owner_ids: Sequence[int]) -> list[OwnedAttempt]:
    """The attempts that these owners hold."""
    rows = await hot.fetch(
        """
        SELECT id, epoch, owner_id, state, try_number, max_tries FROM task_instance
        WHERE owner_id = ANY($1::bigint[]) ORDER BY id
        """,
        owner_ids,
    )
    return [OwnedAttempt(**{**dict(row), "state": TaskState(row["state"])}) for row in rows]


async def read_ended_owners(hot: HotConnection) -> list[int]:
    """Owners of attempts whose process has ended."""
    rows = await hot.fetch(
        """
        SELECT j.id FROM job j WHERE j.ended_at IS NOT NULL
        AND j.id IN (SELECT owner_id FROM task_instance WHERE owner_id IS NOT NULL)
        """
    )
    return [row[0] for row in rows]


async def read_identities(hot: HotConnection, *, instance_ids: Sequence[int]) -> list[tuple[int, int, str]]:
    """Run and task of task instances: ``(id, dag_run_id, task_id)``."""
    rows = await hot.fetch(
        "SELECT id, dag_run_id, task_id FROM task_instance WHERE id = ANY($1::bigint[])", instance_ids
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def read_run_of_attempt(hot: HotConnection, *, instance_id: int, epoch: int) -> int | None:
    """The run of a running attempt, which stays running until the transaction ends; None if it is no longer the one."""
    found: int | None = await hot.fetchval(
        "SELECT dag_run_id FROM task_instance WHERE id = $1 AND epoch = $2 AND state = 'running' FOR NO KEY UPDATE",
        instance_id,
        epoch,
    )
    return found
