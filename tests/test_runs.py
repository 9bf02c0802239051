"""Runs made by hand and by the clock, on a real database."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from app.domain.specs import ScheduleKind, ScheduleSpec
from app.kernel.errors import AlreadyExists, NotFound
from app.services import demand, runs, tasks
from app.services.runs import ManualRun
from app.store import demand as demand_statements
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.databases import database, fetch, notifier
from tests.factories import make_dag, make_job, on_assets, store_events, task
from tests.waiting import eventually

__all__ = ["database", "notifier"]

HOURLY = ScheduleSpec(kind=ScheduleKind.CRON, cron="@hourly")


async def make(database: Database, dag_id: str, **options: Any) -> None:
    async with database.hot() as hot:
        await make_dag(hot, dag_id, **options)


async def runs_of(database: Database, dag_id: str = "d") -> list[Any]:
    return await fetch(database, "SELECT * FROM dag_run WHERE dag_id = $1 ORDER BY id", dag_id)


async def test_a_run_by_hand_starts_as_soon_as_there_is_room(database: Database, notifier: Notifier) -> None:
    await make(database, "d", max_active_runs=1, tasks=[task("a"), task("b", "a")])
    first = await runs.create_manual(
        database, notifier, ManualRun(dag_id="d", triggered_by="rest_api", conf={"k": [1]}, note="mine", user="me")
    )
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli", run_id="second"))
    await demand.plan(database, notifier)

    one, two = await runs_of(database)
    assert one["run_id"] == first.run_id
    assert first.run_id.startswith("manual__")
    assert (one["state"], two["state"], two["run_id"]) == ("running", "queued", "second")
    assert (one["note"], one["triggering_user_name"], one["triggered_by"]) == ("mine", "me", "rest_api")
    async with database.hot() as hot:
        owner = await make_job(hot)
    [order] = await tasks.claim(database, owner_id=owner, limit=10)
    assert order.run.conf == {"k": [1]}
    assert order.run.run_type == "manual"
    changes = await fetch(database, "SELECT to_state FROM state_change WHERE subject = 'run' ORDER BY id")
    assert [change[0] for change in changes] == ["queued", "queued", "running"]


async def test_a_run_by_hand_waits_while_its_dag_is_paused_or_its_time_has_not_come(
    database: Database, notifier: Notifier
) -> None:
    await make(database, "d", paused=True)
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli"))
    later = datetime.now(UTC) + timedelta(hours=1)
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli", run_after=later))
    assert (await demand.plan(database, notifier)).runs == 0
    await fetch(database, "UPDATE dag SET is_paused = false")

    assert (await demand.plan(database, notifier)).runs == 1
    async with database.hot() as hot:
        _, seconds = await demand_statements.read_next_moment(hot, after=None)
    assert seconds is not None
    assert 3000 < seconds < 3700


async def test_what_exists_or_does_not_is_a_typed_refusal(database: Database, notifier: Notifier) -> None:
    await make(database, "d")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    request = ManualRun(dag_id="d", triggered_by="cli", run_id="r", logical_date=moment)
    await runs.create_manual(database, notifier, request)

    with pytest.raises(AlreadyExists, match="'r'"):
        await runs.create_manual(database, notifier, request)
    with pytest.raises(AlreadyExists, match="'r'"):
        await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli", logical_date=moment))
    with pytest.raises(NotFound, match="nothing"):
        await runs.create_manual(database, notifier, ManualRun(dag_id="nothing", triggered_by="cli"))


async def test_a_dag_without_tasks_run_by_hand_succeeds(database: Database, notifier: Notifier) -> None:
    await make(database, "d", tasks=[])
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli"))
    await demand.plan(database, notifier)

    assert [run["state"] for run in await runs_of(database)] == ["success"]


async def test_runs_by_hand_go_before_groups_and_share_the_limit(database: Database, notifier: Notifier) -> None:
    await make(database, "d", schedule=on_assets("a"), max_active_runs=2)
    await store_events(database, "a", "a", "a")
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli"))
    await demand.plan(database, notifier)

    assert [run["run_type"] for run in await runs_of(database)] == ["manual", "asset_triggered"]


async def set_due(database: Database, moment: datetime) -> None:
    await fetch(database, "UPDATE dag SET next_run_at = $1, next_logical_date = $1", moment)


async def test_a_due_run_is_made_once_by_any_number_of_schedulers(database: Database, notifier: Notifier) -> None:
    await make(database, "d", schedule=HOURLY)
    missed = datetime(2026, 1, 1, 5, tzinfo=UTC)
    await set_due(database, missed)

    found = await asyncio.gather(*(runs.create_due(database, notifier) for _ in range(4)))
    assert sum(one.runs for one in found) == 1
    await demand.plan(database, notifier)
    [run] = await runs_of(database)
    assert (run["run_id"], run["state"]) == ("scheduled__2026-01-01T05:00:00+00:00", "running")
    assert run["logical_date"] == missed
    [dag] = await fetch(database, "SELECT next_run_at, now() AS now FROM dag")
    assert timedelta(0) < dag["next_run_at"] - dag["now"] <= timedelta(hours=1)


async def test_with_catchup_each_missed_run_is_made_within_the_limit(database: Database, notifier: Notifier) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    await make(database, "d", schedule=HOURLY, catchup=True, start_date=start.isoformat(), max_active_runs=2)
    await set_due(database, start)
    for _ in range(10):
        await runs.create_due(database, notifier)
        await demand.plan(database, notifier)
        await fetch(database, "UPDATE dag_run SET state = 'success', end_date = now() WHERE state = 'running'")

    made = [run["logical_date"] for run in await runs_of(database)]
    assert made == [start + timedelta(hours=hour) for hour in range(6)]


async def test_a_dag_at_its_limit_makes_its_due_run_later(database: Database, notifier: Notifier) -> None:
    await make(database, "d", schedule=HOURLY, max_active_runs=1)
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli"))
    await demand.plan(database, notifier)
    await set_due(database, datetime(2026, 1, 1, tzinfo=UTC))

    assert (await runs.create_due(database, notifier)).runs == 0
    await fetch(database, "UPDATE dag_run SET state = 'success', end_date = now()")
    assert (await runs.create_due(database, notifier)).runs == 1


async def test_once_and_continuous(database: Database, notifier: Notifier) -> None:
    await make(database, "once", schedule=ScheduleSpec(kind=ScheduleKind.ONCE))
    await make(database, "on", schedule=ScheduleSpec(kind=ScheduleKind.CONTINUOUS), max_active_runs=1, tasks=[])
    await set_due(database, datetime(2026, 1, 1, tzinfo=UTC))

    async def go_on() -> bool:
        await runs.create_due(database, notifier)
        await demand.plan(database, notifier)
        return len(await runs_of(database, "on")) >= 3

    await eventually(go_on, 30, what="the third run")
    assert len(await runs_of(database, "once")) == 1
    found = await runs_of(database, "on")
    assert {run["state"] for run in found} == {"success"}
    starts = [run["start_date"] for run in found]
    assert all(later - earlier >= runs.CONTINUOUS_PAUSE for earlier, later in pairwise(starts))


async def test_one_broken_schedule_stops_no_other(database: Database, notifier: Notifier) -> None:
    await make(database, "broken", schedule=ScheduleSpec(kind=ScheduleKind.CRON, cron="nonsense"))
    await make(database, "sound", schedule=HOURLY)
    await set_due(database, datetime(2026, 1, 1, tzinfo=UTC))

    outcome = await runs.create_due(database, notifier)
    assert outcome.runs == 1
    assert "nonsense" in str(outcome.failed["broken"])
    assert not await runs_of(database, "broken")
    [warning] = await fetch(database, "SELECT dag_id, message FROM dag_warning WHERE warning_type = 'planning'")
    assert warning["dag_id"] == "broken"
    assert "nonsense" in warning["message"]
