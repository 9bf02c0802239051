"""Statements about DAG runs: made with their causes and task instances, started, advanced and ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.domain.runs import Instance
from app.domain.states import RunState, RunType, TaskState
from app.store.database import HotConnection


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run about to be stored. ``conf`` is JSON text."""

    run_id: str
    run_type: RunType
    triggered_by: str
    state: RunState
    run_after: datetime
    group_id: int | None = None
    logical_date: datetime | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    conf: str = "{}"
    note: str | None = None
    user: str | None = None


class MadeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run just stored."""

    id: int
    run_id: str
    group_id: int | None


class NewInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One task instance that each new run of a version gets."""

    task_id: str
    state: TaskState
    max_tries: int
    pool: str
    pool_slots: int
    queue: str
    priority_weight: int
    operator: str


class LockedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run under its row lock. ``start_date`` is None until it starts; ``now`` is the database's clock."""

    id: int
    dag_id: str
    run_id: str
    run_type: str
    dag_version_id: int
    state: RunState
    start_date: datetime | None
    now: datetime


async def read_ready_groups(hot: HotConnection, *, dag_id: str, limit: int) -> list[int]:
    """Closed groups that wait for their run, in order."""
    rows = await hot.fetch(
        "SELECT id FROM demand_group WHERE dag_id = $1 AND state = 'ready' ORDER BY position LIMIT $2", dag_id, limit
    )
    return [row[0] for row in rows]


async def insert_runs(
    hot: HotConnection, *, dag_id: str, version_id: int, runs: Sequence[NewRun], now: datetime
) -> list[MadeRun]:
    """Store runs whose id (and, for scheduled ones, logical date) is not taken, in order; return those stored."""
    rows = await hot.fetch(
        """
        INSERT INTO dag_run (dag_id, dag_version_id, run_id, run_type, triggered_by, state, group_id, run_after,
                             logical_date, data_interval_start, data_interval_end, conf, note, triggering_user_name,
                             queued_at, start_date, end_date, last_scheduling_decision)
        SELECT $1, $2, r.run_id, r.run_type, r.triggered_by, r.state, r.group_id, r.run_after, r.logical_date,
               r.interval_start, r.interval_end, r.conf, r.note, r.user_name, $3::timestamptz,
               CASE WHEN r.state <> 'queued' THEN $3::timestamptz END,
               CASE WHEN r.state IN ('success', 'failed') THEN $3::timestamptz END, $3::timestamptz
        FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::timestamptz[],
                    $10::timestamptz[], $11::timestamptz[], $12::timestamptz[], $13::json[], $14::text[], $15::text[])
             AS r(run_id, run_type, triggered_by, state, group_id, run_after, logical_date, interval_start,
                  interval_end, conf, note, user_name)
        ON CONFLICT DO NOTHING
        RETURNING id, run_id, group_id
        """,
        dag_id,
        version_id,
        now,
        [run.run_id for run in runs],
        [run.run_type for run in runs],
        [run.triggered_by for run in runs],
        [run.state for run in runs],
        [run.group_id for run in runs],
        [run.run_after for run in runs],
        [run.logical_date for run in runs],
        [run.data_interval_start for run in runs],
        [run.data_interval_end for run in runs],
        [run.conf for run in runs],
        [run.note for run in runs],
        [run.user for run in runs],
    )
    return [MadeRun(id=row[0], run_id=row[1], group_id=row[2]) for row in rows]


_FILL_RUNS = """
WITH made AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::text[], $4::bigint[]) AS m(run_key, run_id, group_id)
), started AS (
    UPDATE demand_group g SET state = 'started' FROM made
    WHERE g.id = made.group_id AND g.dag_id = $1 AND g.state = 'ready' RETURNING g.id
), consumed AS (
    UPDATE demand d SET state = 'consumed' FROM made
    WHERE d.group_id = made.group_id AND d.dag_id = $1 AND d.state = 'grouped'
    RETURNING made.run_key, d.event_id, d.arrival
), causes AS (
    INSERT INTO dag_run_event (dag_run_id, event_id, dag_id, triggering)
    SELECT run_key, event_id, $1, arrival = max(arrival) OVER (PARTITION BY run_key) FROM consumed
), instances AS (
    INSERT INTO task_instance (dag_run_id, dag_id, run_id, task_id, state, max_tries, pool, pool_slots, queue,
                               priority_weight, operator, scheduled_at)
    SELECT made.run_key, $1, made.run_id, t.task_id, t.state, t.max_tries, t.pool, t.pool_slots, t.queue,
           t.priority_weight, t.operator, CASE WHEN t.state = 'scheduled' THEN $5::timestamptz END
    FROM made CROSS JOIN unnest($6::text[], $7::text[], $8::int[], $9::text[], $10::int[], $11::text[], $12::int[],
                                $13::text[])
         AS t(task_id, state, max_tries, pool, pool_slots, queue, priority_weight, operator)
    RETURNING id, state
), changes AS (
    INSERT INTO state_change (subject, subject_id, to_state, try_number)
    SELECT 'run', run_key, $14::text, NULL::int FROM made
    UNION ALL SELECT 'task', id, state, 1 FROM instances WHERE state = 'scheduled'
)
SELECT (SELECT count(*) FROM started), (SELECT count(DISTINCT run_key) FROM consumed)
"""


async def fill_runs(
    hot: HotConnection,
    *,
    dag_id: str,
    made: Sequence[MadeRun],
    state: RunState,
    instances: Sequence[NewInstance],
    now: datetime,
) -> tuple[int, int]:
    """Give runs just stored their causes and task instances; consume the demand of their groups.

    Returns how many groups were started and how many runs got a cause.
    """
    row = await hot.fetchrow(
        _FILL_RUNS,
        dag_id,
        [run.id for run in made],
        [run.run_id for run in made],
        [run.group_id for run in made],
        now,
        [one.task_id for one in instances],
        [one.state for one in instances],
        [one.max_tries for one in instances],
        [one.pool for one in instances],
        [one.pool_slots for one in instances],
        [one.queue for one in instances],
        [one.priority_weight for one in instances],
        [one.operator for one in instances],
        state,
    )
    return row[0], row[1]


async def start_queued_runs(hot: HotConnection, *, dag_id: str, limit: int, now: datetime) -> list[int]:
    """Start runs that wait, oldest first. Call it under the DAG's row lock, which is what keeps the limit."""
    rows = await hot.fetch(
        """
        WITH started AS (
            UPDATE dag_run
            SET state = 'running', start_date = $3::timestamptz, last_scheduling_decision = $3::timestamptz
            WHERE id IN (SELECT id FROM dag_run
                         WHERE dag_id = $1 AND state = 'queued' AND run_after <= $3::timestamptz
                         ORDER BY run_after, id LIMIT $2)
              AND state = 'queued'
            RETURNING id
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state)
            SELECT 'run', id, 'queued', 'running' FROM started
        )
        SELECT id FROM started ORDER BY id
        """,
        dag_id,
        limit,
        now,
    )
    return [row[0] for row in rows]


async def lock_runs(hot: HotConnection, *, run_keys: Sequence[int]) -> list[LockedRun]:
    """Lock runs in id order: whoever advances several runs takes them in the same order."""
    rows = await hot.fetch(
        """
        SELECT id, dag_id, run_id, run_type, dag_version_id, state, start_date, clock_timestamp() AS now FROM dag_run
        WHERE id = ANY($1::bigint[])
        ORDER BY id FOR NO KEY UPDATE
        """,
        run_keys,
    )
    return [_locked_run(row) for row in rows]


async def lock_runs_of_instances(hot: HotConnection, *, instance_ids: Sequence[int]) -> list[LockedRun]:
    """Lock the runs of these task instances, in id order."""
    rows = await hot.fetch(
        """
        SELECT id, dag_id, run_id, run_type, dag_version_id, state, start_date, clock_timestamp() AS now FROM dag_run
        WHERE id IN (SELECT dag_run_id FROM task_instance WHERE id = ANY($1::bigint[]))
        ORDER BY id FOR NO KEY UPDATE
        """,
        instance_ids,
    )
    return [_locked_run(row) for row in rows]


def _locked_run(row: Sequence[object]) -> LockedRun:
    values = dict(zip(LockedRun.__struct_fields__, row, strict=True))
    return LockedRun(**{**values, "state": RunState(str(values["state"]))})  # type: ignore[arg-type]


async def read_instances(hot: HotConnection, *, run_keys: Sequence[int]) -> dict[int, list[Instance]]:
    """All task instances of runs, by run."""
    rows = await hot.fetch(
        "SELECT dag_run_id, id, task_id, state FROM task_instance WHERE dag_run_id = ANY($1::bigint[]) ORDER BY id",
        run_keys,
    )
    found: dict[int, list[Instance]] = {key: [] for key in run_keys}
    for row in rows:
        found[row[0]].append(Instance(id=row[1], task_id=row[2], state=TaskState(row[3])))
    return found


async def move_instances(hot: HotConnection, *, moves: Sequence[tuple[int, TaskState, str]], now: datetime) -> int:
    """Carry out what trigger rules decided for instances that have not started; how many moved."""
    count: int = await hot.fetchval(
        """
        WITH moved AS (
            UPDATE task_instance t
            SET state = m.state, note = nullif(m.reason, ''),
                scheduled_at = CASE WHEN m.state = 'scheduled' THEN $4::timestamptz END,
                end_date = CASE WHEN m.state <> 'scheduled' THEN $4::timestamptz END
            FROM unnest($1::bigint[], $2::text[], $3::text[]) AS m(id, state, reason)
            WHERE t.id = m.id AND t.state = 'none'
            RETURNING t.id, t.state, t.try_number, t.note
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state, try_number, reason)
            SELECT 'task', id, 'none', state, try_number, note FROM moved
        )
        SELECT count(*) FROM moved
        """,
        [move[0] for move in moves],
        [move[1] for move in moves],
        [move[2] for move in moves],
        now,
    )
    return count


async def end_runs(hot: HotConnection, *, ends: Sequence[tuple[int, RunState]], now: datetime) -> list[int]:
    """End running runs; those that were running."""
    rows = await hot.fetch(
        """
        WITH ended AS (
            UPDATE dag_run r SET state = e.state, end_date = $3::timestamptz, last_scheduling_decision = $3::timestamptz
            FROM unnest($1::bigint[], $2::text[]) AS e(id, state)
            WHERE r.id = e.id AND r.state = 'running' RETURNING r.id, r.state
        ), changes AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state)
            SELECT 'run', id, 'running', state FROM ended
        )
        SELECT id FROM ended
        """,
        [run_key for run_key, _ in ends],
        [state for _, state in ends],
        now,
    )
    return [row[0] for row in rows]


async def is_run_taken(hot: HotConnection, *, dag_id: str, run_id: str, logical_date: datetime | None) -> str | None:
    """The id of a run of the DAG that has this run id or this logical date."""
    found: str | None = await hot.fetchval(
        """
        SELECT run_id FROM dag_run
        WHERE dag_id = $1 AND (run_id = $2 OR logical_date = $3::timestamptz) ORDER BY id LIMIT 1
        """,
        dag_id,
        run_id,
        logical_date,
    )
    return found


async def read_due_dags(hot: HotConnection) -> list[str]:
    """DAGs whose time schedule is due."""
    rows = await hot.fetch(
        """
        SELECT dag_id FROM dag WHERE next_run_at <= clock_timestamp() AND is_active AND NOT is_paused
        ORDER BY next_run_at
        """
    )
    return [row[0] for row in rows]


async def set_next_run(
    hot: HotConnection, *, dag_id: str, claimed: datetime | None, due: tuple[datetime, datetime] | None
) -> bool:
    """Replace the claimed moment of a DAG's time schedule by the next one (``next_run_at``, ``next_logical_date``).

    False: somebody else replaced it before.
    """
    status: str = await hot.execute(
        """
        UPDATE dag SET next_run_at = $3::timestamptz, next_logical_date = $4::timestamptz
        WHERE dag_id = $1 AND next_run_at IS NOT DISTINCT FROM $2::timestamptz
        """,
        dag_id,
        claimed,
        due[0] if due else None,
        due[1] if due else None,
    )
    return status == "UPDATE 1"
