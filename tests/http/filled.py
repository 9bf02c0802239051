"""A database with something in every state, for reading."""

from __future__ import annotations

from app.domain.specs import BatchSpec
from app.domain.states import FINAL_RUN_STATES, FINAL_TASK_STATES, RunState, RunType, TaskState, TriggerStatus
from app.store.database import HotConnection
from tests.factories import make_asset, make_dag, make_job, on_assets, store_events, task
from tests.triggerer.world import World

DAG, OTHER, RETIRED = "consumer", "batching", "retired"
TASK = "work"
_XCOMS = {
    "return_value": '{"__type__":"tuple","value":[1,{"__type__":"set","value":["a"]}]}',
    "moment": '{"__type__":"datetime","value":"2026-01-01T00:00:00+00:00"}',
    "none": "null",
}


def run_id_of(state: RunState) -> str:
    """The run that is in a state."""
    return f"run:{state.value}+1"


async def fill(world: World) -> None:
    """DAGs paused, retired, with import errors; runs and tasks in all states; events of all origins; demand; triggers
    in all states; dead letters; XComs."""
    async with world.database.hot() as hot:
        tasks = [task(TASK), *(task(f"t_{state.value}", TASK) for state in TaskState)]
        version = await make_dag(hot, DAG, schedule=on_assets("a | b"), tasks=tasks, tags=("x",), owners=("me",))
        await make_dag(hot, OTHER, schedule=on_assets("a & c", batch=BatchSpec(max_events=5)), paused=True)
        await make_dag(hot, RETIRED, params={"p": {"q": [1, None]}}, description="gone", display_name="Gone")
        await hot.execute("UPDATE dag SET is_active = false WHERE dag_id = $1", RETIRED)
        await hot.execute("INSERT INTO dag_warning (dag_id, warning_type, message) VALUES ($1, 'conflict', 'm')", DAG)
        await hot.execute(
            "INSERT INTO import_error (filename, line, message, stack_trace, timestamp) "
            "VALUES ('pipeline.py', 3, 'm', 's', now()), ('broken/other.py', NULL, 'm', 's', now())"
        )
        await _use_assets(hot)
        job = await make_job(hot)
        for state in RunState:
            await _run(hot, version, state=state, job=job)
    events = [*await store_events(world.database, "a", "b", "c"), *await store_events(world.database, "a", extra="{}")]
    await _causes(world, events)
    await _triggers(world, job)


async def _use_assets(hot: HotConnection) -> None:
    asset = await make_asset(hot, "a")
    sleeping = await make_asset(hot, "sleeping")
    await hot.execute('UPDATE asset SET is_active = false, extra = \'{"token": "t"}\' WHERE id = $1', sleeping)
    for kind in ("outlet", "inlet"):
        await hot.execute(
            "INSERT INTO asset_reference (dag_id, asset_id, kind, task_id) VALUES ($1, $2, $3, $4)",
            DAG,
            asset,
            kind,
            TASK,
        )


async def _run(hot: HotConnection, version: int, *, state: RunState, job: int) -> None:
    ended = state in FINAL_RUN_STATES
    run = await hot.fetchval(
        """
        INSERT INTO dag_run (dag_id, run_id, dag_version_id, run_type, triggered_by, state, run_after, queued_at,
                             logical_date, start_date, end_date, conf)
        VALUES ($1, $2, $3, $4, 'asset', $5::text, now(), now(), CASE WHEN $6 THEN now() END,
                CASE WHEN $5::text <> 'queued' THEN now() END, CASE WHEN $6 THEN now() END, '{"a": [null]}')
        RETURNING id
        """,
        DAG,
        run_id_of(state),
        version,
        (RunType.MANUAL if ended else RunType.ASSET_TRIGGERED).value,
        state.value,
        ended,
    )
    for task_state in TaskState:
        await _instance(hot, run, run_id_of(state), state=task_state, job=job)
    for key, value in _XCOMS.items():
        await hot.execute(
            "INSERT INTO xcom (dag_run_id, task_id, key, value, timestamp) VALUES ($1, 't_success', $2, $3, now())",
            run,
            key,
            value,
        )


async def _instance(hot: HotConnection, run: int, run_id: str, *, state: TaskState, job: int) -> None:
    await hot.execute(
        """
        INSERT INTO task_instance (dag_run_id, dag_id, run_id, task_id, state, max_tries, owner_id, pool, pool_slots,
                                   queue, priority_weight, operator, start_date, end_date, next_attempt_at)
        VALUES ($1, $2, $3, 't_' || $4::text, $4::text, 1, $5, 'default_pool', 1, 'default', 1, 'Empty',
                CASE WHEN $6 THEN now() END, CASE WHEN $6 THEN now() END, CASE WHEN $7 THEN now() END)
        """,
        run,
        DAG,
        run_id,
        state.value,
        job if state in {TaskState.QUEUED, TaskState.RUNNING} else None,
        state in FINAL_TASK_STATES,
        state in {TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE},
    )


async def _causes(world: World, events: list[int]) -> None:
    """The first event started every run but the queued one's; an event of a task and one of a trigger have none."""
    for event, state in zip(events, (RunState.RUNNING, RunState.SUCCESS), strict=False):
        await world.value(
            """
            INSERT INTO dag_run_event (dag_run_id, event_id, dag_id, triggering)
            SELECT id, $1, dag_id, true FROM dag_run WHERE dag_id = $2 AND run_id = $3
            """,
            event,
            DAG,
            run_id_of(state),
        )
    await world.value(
        """
        WITH body AS (INSERT INTO event_body (extra) VALUES ('{"from_trigger": true, "payload": "\\u0000"}')
                      RETURNING id)
        INSERT INTO asset_event (asset_id, body_id, origin, timestamp, source_dag_id, source_task_id, source_run_id,
                                 trigger_id, source, key)
        SELECT a.id, body.id, o.origin, now(), d, t, r, g, s, k FROM asset a, body,
        (VALUES ('task', 'gone', 't', 'r', NULL, NULL, NULL), ('trigger', NULL, NULL, NULL, 99::bigint, 's', 'k'))
        AS o (origin, d, t, r, g, s, k) WHERE a.name = 'a'
        """
    )


async def _triggers(world: World, job: int) -> None:
    asset = await world.value("SELECT id FROM asset WHERE name = 'a'")
    for status in TriggerStatus:
        trigger = await world.trigger(asset)
        if status is not TriggerStatus.UNASSIGNED:
            await world.own(trigger, job)
        await world.value(
            "UPDATE trigger SET status = $2, last_error = 'e', last_error_at = now(), last_event_at = now() "
            "WHERE id = $1",
            trigger,
            status.value,
        )
    await world.value(
        """
        INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status, task_instance_id)
        SELECT 'task', repeat('a', 64), 'x.Y', 'k', true, 'unassigned', id FROM task_instance
        WHERE state = 'deferred' ORDER BY id LIMIT 1
        """
    )
    await world.value(
        """
        INSERT INTO dead_letter (trigger_id, asset_id, source, key, code, reason, raw, raw_size)
        VALUES (1, $1, 's', 'k', 'nan', 'r', '\\xff00', 2), (NULL, NULL, NULL, NULL, 'size', 'r', NULL, NULL)
        """,
        asset,
    )
