"""From demand to runs on a real database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.specs import BatchSpec, DagSpec, ScheduleSpec
from app.domain.states import RunState
from app.services import demand, runs
from app.services.versions import versions_of
from app.store import demand as demand_statements
from app.store.database import Database
from app.store.events import hot_of
from app.store.wakeups import Notifier
from tests.databases import database, fetch, notifier
from tests.factories import make_asset, make_dag, make_version, on_assets, store_events, task

__all__ = ["database", "notifier"]


async def plan_all(database: Database, notifier: Notifier) -> int:
    """Plan until nothing is left to do; how many runs were started."""
    started = 0
    while True:
        outcome = await demand.plan(database, notifier)
        if outcome.failed:
            raise next(iter(outcome.failed.values()))
        started += outcome.runs
        if not outcome.more:
            return started


async def causes(database: Database, dag_id: str) -> list[list[int]]:
    """The events of each run of a DAG, runs in the order they were made, events in the DAG's order."""
    rows = await fetch(
        database,
        """
        SELECT array_agg(e.event_id ORDER BY d.arrival) FROM dag_run r
        JOIN dag_run_event e ON e.dag_run_id = r.id JOIN demand d ON d.dag_id = r.dag_id AND d.event_id = e.event_id
        WHERE r.dag_id = $1 GROUP BY r.id ORDER BY r.id
        """,
        dag_id,
    )
    return [row[0] for row in rows]


async def states(database: Database, table: str, dag_id: str) -> dict[str, int]:
    rows = await fetch(database, f"SELECT state FROM {table} WHERE dag_id = $1", dag_id)
    return dict(Counter(row[0] for row in rows))


async def end_runs(database: Database, dag_id: str, *, limit: int = 1000) -> int:
    """End running runs as their tasks would."""
    rows = await fetch(
        database,
        """
        UPDATE dag_run SET state = 'success', end_date = now()
        WHERE id IN (SELECT id FROM dag_run WHERE dag_id = $1 AND state = 'running' ORDER BY id LIMIT $2) RETURNING id
        """,
        dag_id,
        limit,
    )
    return len(rows)


async def make(database: Database, dag_id: str, schedule: str | ScheduleSpec, **options: Any) -> None:
    async with database.hot() as hot:
        await make_dag(hot, dag_id, schedule=on_assets(schedule) if isinstance(schedule, str) else schedule, **options)


async def test_each_event_starts_one_run_with_its_tasks(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a", tasks=[task("first"), task("second", "first")])
    events = await store_events(database, "a", "a", "a")

    assert await plan_all(database, notifier) == 3

    assert await causes(database, "d") == [[event] for event in events]
    assert await states(database, "demand", "d") == {"consumed": 3}
    assert await states(database, "demand_group", "d") == {"started": 3}
    assert await states(database, "dag_run", "d") == {"running": 3}
    assert await states(database, "task_instance", "d") == {"scheduled": 3, "none": 3}
    [run] = await fetch(database, "SELECT * FROM dag_run ORDER BY id LIMIT 1")
    assert run["run_id"].startswith("asset_triggered__20")
    assert (run["logical_date"], run["run_type"], run["triggered_by"]) == (None, "asset_triggered", "asset")
    [dag] = await fetch(database, "SELECT has_demand FROM dag")
    assert dag["has_demand"] is False
    changes = await fetch(
        database, "SELECT subject, to_state, count(*) AS n FROM state_change GROUP BY 1, 2 ORDER BY 1"
    )
    assert [tuple(change) for change in changes] == [("run", "running", 3), ("task", "scheduled", 3)]


async def test_planning_again_does_nothing(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a & b")
    await store_events(database, "a")

    assert await plan_all(database, notifier) == 0
    assert await plan_all(database, notifier) == 0
    assert await states(database, "demand", "d") == {"pending": 1}


@pytest.mark.parametrize(
    ("condition", "stream", "expected", "pending"),
    [
        ("a & b", "abab", [[0, 1], [2, 3]], 0),
        ("a & b", "aabb", [[0, 1, 2]], 1),
        ("a | b", "ab", [[0], [1]], 0),
        ("a & b | c", "acb", [[1], [0, 2]], 0),
    ],
)
async def test_groups_follow_arrival_not_timing(
    database: Database, notifier: Notifier, condition: str, stream: str, expected: list[list[int]], pending: int
) -> None:
    await make(database, "held", condition, max_active_runs=1)
    await make(database, "eager", condition)
    events: list[int] = []
    for name in stream:
        events += await store_events(database, name)
        await plan_all(database, notifier)
    while await end_runs(database, "held"):
        await plan_all(database, notifier)

    wanted = [[events[index] for index in group] for group in expected]
    assert await causes(database, "held") == wanted
    assert await causes(database, "eager") == wanted
    assert (await states(database, "demand", "held")).get("pending", 0) == pending


async def test_the_triggering_event_is_the_one_that_completed_the_condition(
    database: Database, notifier: Notifier
) -> None:
    await make(database, "d", "a & b")
    events = await store_events(database, "a", "a", "b")
    await plan_all(database, notifier)

    rows = await fetch(database, "SELECT event_id, triggering FROM dag_run_event ORDER BY event_id")
    assert [tuple(row) for row in rows] == list(zip(events, [False, False, True], strict=True))


async def test_a_hundred_events_with_one_active_run(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a", max_active_runs=1)
    events = [event for batch in range(10) for event in await store_events(database, *["a"] * 10)]

    for done in range(100):
        assert await plan_all(database, notifier) == 1, f"after {done} runs"
        assert await states(database, "dag_run", "d") == {"running": 1} | ({"success": done} if done else {})
        await end_runs(database, "d")
    assert await plan_all(database, notifier) == 0
    assert await causes(database, "d") == [[event] for event in events]
    assert await states(database, "demand", "d") == {"consumed": 100}
    [dag] = await fetch(database, "SELECT has_demand FROM dag")
    assert dag["has_demand"] is False


async def test_planners_at_the_same_time_start_each_run_once(database: Database, notifier: Notifier) -> None:
    for name in "xyz":
        await make(database, name, "a | b", max_active_runs=500)
    stop = asyncio.Event()

    async def planner() -> None:
        while not stop.is_set():
            await demand.plan(database, notifier)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(planner())
        events = [event for _ in range(40) for event in await store_events(database, "a", "b", "a")]
        stop.set()
    await plan_all(database, notifier)

    for name in "xyz":
        assert await causes(database, name) == [[event] for event in events]


async def test_a_dag_without_tasks_succeeds_at_once(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a", tasks=[], max_active_runs=1)
    await store_events(database, "a", "a", "a")

    assert await plan_all(database, notifier) == 3
    assert await states(database, "dag_run", "d") == {"success": 3}


async def test_a_taken_run_id_is_replaced(database: Database) -> None:
    await make(database, "d", "a")
    await store_events(database, "a", "a")
    suffixes = iter(["same", "same", "same", "other"])
    async with database.hot() as hot:
        dag = await demand_statements.lock_dag(hot, dag_id="d", patience=None)
        assert dag is not None
        version = await versions_of(database).get(hot, dag.current_version_id or 0)
        situation = await demand_statements.read_situation(hot, dag_id="d")
        await demand._group_pending(hot, dag=dag, version=version, situation=situation)
        made = await runs.start_ready_groups(hot, dag=dag, version=version, limit=5, suffix=lambda: next(suffixes))

    assert made == (2, False)
    rows = await fetch(database, "SELECT right(run_id, 5) AS suffix FROM dag_run ORDER BY id")
    assert [row["suffix"] for row in rows] == ["_same", "other"]


async def test_a_paused_dag_starts_nothing_and_goes_on_in_order(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a", max_active_runs=1)
    before = await store_events(database, "a", "a")
    await plan_all(database, notifier)
    await fetch(database, "UPDATE dag SET is_paused = true")
    await store_events(database, "a")
    await end_runs(database, "d")
    assert await plan_all(database, notifier) == 0

    await fetch(database, "UPDATE dag SET is_paused = false")
    after = await store_events(database, "a")
    while await plan_all(database, notifier):
        await end_runs(database, "d")

    assert await causes(database, "d") == [[event] for event in before + after]
    assert await states(database, "demand", "d") == {"consumed": 3, "skipped": 1}


async def edit(database: Database, dag_id: str, schedule: ScheduleSpec) -> int:
    """Give the DAG a new schedule as the dag processor does, in one transaction; the events dropped."""
    async with database.transaction() as connection:
        hot = await hot_of(connection)
        spec = DagSpec(dag_id=dag_id, fileloc="pipeline.py", schedule=schedule, tasks=(task("work"),))
        await make_version(hot, spec)
        rows = await hot.fetch("SELECT asset_id FROM asset_reference WHERE dag_id = $1 AND kind = 'schedule'", dag_id)
        return await demand.drop_unscheduled(connection, dag_id, [row[0] for row in rows])


async def test_a_schedule_edited_while_events_wait(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a & b")
    [a1] = await store_events(database, "a")
    await plan_all(database, notifier)

    assert await edit(database, "d", on_assets("a & c")) == 0
    assert await plan_all(database, notifier) == 0
    [c1] = await store_events(database, "c")
    assert await plan_all(database, notifier) == 1
    assert await causes(database, "d") == [[a1, c1]]

    await store_events(database, "a", "a")
    assert await edit(database, "d", on_assets("b & c")) == 2
    [dropped] = await fetch(database, "SELECT DISTINCT reason FROM demand WHERE state = 'dropped'")
    assert dropped["reason"] == demand.LEFT_SCHEDULE
    assert await plan_all(database, notifier) == 0


async def test_groups_that_wait_follow_an_edited_schedule(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a & b", max_active_runs=1)
    events = await store_events(database, "a", "b", "a", "b", "a")
    await plan_all(database, notifier)
    assert await states(database, "demand_group", "d") == {"started": 1, "ready": 1}

    assert await edit(database, "d", on_assets("a")) == 1
    while await end_runs(database, "d"):
        await plan_all(database, notifier)
    assert await causes(database, "d") == [events[:2], [events[2]], [events[4]]]


async def test_pending_events_run_once_an_edit_satisfies_them(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a & b")
    [a1] = await store_events(database, "a")
    await plan_all(database, notifier)

    await edit(database, "d", on_assets("a | b"))
    assert await plan_all(database, notifier) == 1
    assert await causes(database, "d") == [[a1]]


async def test_deleting_queued_events_removes_exactly_those(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a | b & c", max_active_runs=1)
    await make(database, "other", "a", max_active_runs=1)
    events = await store_events(database, "a", "a", "b", "a")
    await plan_all(database, notifier)
    [[asset_id]] = await fetch(database, "SELECT id FROM asset WHERE name = 'a'")

    assert await demand.delete_queued(database, notifier, dag_id="d", asset_id=asset_id) == 2
    assert await states(database, "demand", "d") == {"consumed": 1, "dropped": 2, "pending": 1}
    assert await states(database, "demand", "other") == {"consumed": 1, "grouped": 2}

    assert await demand.delete_queued(database, notifier, asset_id=asset_id) == 2
    for name in ("d", "other"):
        await end_runs(database, name)
    assert await plan_all(database, notifier) == 0
    assert await causes(database, "d") == [events[:1]]


async def test_batches_close_by_number_and_survive_a_restart(database_url: str, notifier: Notifier) -> None:
    async with await Database.connect(database_url) as first:
        await make(first, "d", on_assets("a", batch=BatchSpec(max_events=3)))
        events = await store_events(first, "a", "a")
        assert await plan_all(first, notifier) == 0
    async with await Database.connect(database_url) as second:
        assert await states(second, "demand_group", "d") == {"collecting": 1}
        events += await store_events(second, "a", "a")
        assert await plan_all(second, notifier) == 1
        assert await causes(second, "d") == [events[:3]]
        assert await states(second, "demand", "d") == {"consumed": 3, "grouped": 1}


async def test_batches_close_by_time(database: Database, notifier: Notifier) -> None:
    await make(database, "d", on_assets("a", batch=BatchSpec(max_events=100, max_wait=3600)))
    events = await store_events(database, "a", "a")
    assert await plan_all(database, notifier) == 0
    async with database.hot() as hot:
        _, seconds = await demand_statements.read_next_moment(hot, after=None)
    assert seconds is not None
    assert 3000 < seconds <= 3600

    await fetch(database, "UPDATE demand_group SET closes_at = now()")
    assert await plan_all(database, notifier) == 1
    assert await causes(database, "d") == [events]
    async with database.hot() as hot:
        assert (await demand_statements.read_next_moment(hot, after=None))[1] is None


async def test_one_broken_dag_stops_no_other(database: Database, notifier: Notifier) -> None:
    await make(database, "broken", "a")
    await make(database, "sound", "a")
    await store_events(database, "a")
    await fetch(database, "UPDATE dag_version SET spec = '{\"dag_id\": 5}' WHERE dag_id = 'broken'")

    outcome = await demand.plan(database, notifier)
    assert outcome.runs == 1
    assert list(outcome.failed) == ["broken"]
    [warning] = await fetch(database, "SELECT dag_id, message FROM dag_warning WHERE warning_type = 'planning'")
    assert warning["dag_id"] == "broken"
    assert "DagSpec" in warning["message"] or "dag_id" in warning["message"]
    assert await demand.plan(database, notifier, skip={"broken"}) == demand.PlanRound()

    async with database.hot() as hot:
        spec = DagSpec(dag_id="broken", fileloc="p.py", schedule=on_assets("a"), tasks=(task("work"),))
        await make_version(hot, spec)
    assert await plan_all(database, notifier) == 1
    assert not await fetch(database, "SELECT 1 FROM dag_warning")


async def test_a_flood_on_one_dag_leaves_turns_to_others(database: Database, notifier: Notifier) -> None:
    await make(database, "a_flooded", "a", max_active_runs=1000)
    await make(database, "z_quiet", "z", max_active_runs=1000)
    await store_events(database, *["a"] * 300)
    await store_events(database, "z")

    outcome = await demand.plan(database, notifier)
    assert await states(database, "dag_run", "z_quiet") == {"running": 1}
    assert outcome.more == ["a_flooded"]
    assert await states(database, "dag_run", "a_flooded") == {"running": demand.RUNS_PER_TURN}


async def test_a_dag_whose_row_is_busy_is_planned_all_the_same(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a")
    await store_events(database, "a")
    planned: asyncio.Task[demand.PlanRound]
    async with asyncio.TaskGroup() as group, database.hot() as hot:
        await hot.execute("SELECT 1 FROM dag FOR NO KEY UPDATE")
        planned = group.create_task(demand.plan(database, notifier))
        await asyncio.sleep(0.05)
    assert planned.result().runs == 1


async def test_a_dag_whose_row_stays_locked_holds_up_no_other(database: Database, notifier: Notifier) -> None:
    await make(database, "locked", "a")
    await make(database, "sound", "a")
    await store_events(database, "a")
    async with database.hot() as hot:
        await hot.execute("SELECT 1 FROM dag WHERE dag_id = 'locked' FOR NO KEY UPDATE")
        outcome = await demand.plan(database, notifier)
    assert (outcome.planned, outcome.busy, outcome.failed) == (["sound"], ["locked"], {})
    assert (await demand.plan(database, notifier)).planned == ["locked"]


async def test_a_retired_dag_starts_nothing(database: Database, notifier: Notifier) -> None:
    await make(database, "d", "a")
    await store_events(database, "a")
    await fetch(database, "UPDATE dag SET is_active = false")

    assert await plan_all(database, notifier) == 0


def test_run_states_used_here_exist() -> None:
    assert {"running", "success"} <= {state.value for state in RunState}


async def test_assets_of_the_schedule_are_found_by_name_and_uri(database: Database) -> None:
    await make(database, "d", "a & b")
    async with database.hot() as hot:
        known = await demand_statements.read_scheduled_assets(hot, dag_id="d")
        ids: Sequence[int] = [await make_asset(hot, name) for name in "ab"]
    assert known == {("a", "x://a"): ids[0], ("b", "x://b"): ids[1]}
