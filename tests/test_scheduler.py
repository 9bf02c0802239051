"""The scheduler's loops, woken rather than polling."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.orders import AttemptOrder, Succeeded
from app.domain.specs import BatchSpec, DagSpec, ScheduleKind, ScheduleSpec, TaskSpec
from app.kernel.clock import ManualClock, SystemClock
from app.kernel.settings import Settings
from app.processes.scheduler.planning import Planner
from app.processes.scheduler.scheduler import TOPICS, Scheduler
from app.services import runs, tasks
from app.services.jobs import JobSession
from app.services.runs import ManualRun
from app.services.tasks import AttemptReport, StartedAttempt
from app.store.database import Database
from app.store.wakeups import Listener, Notifier
from tests.databases import database, fetch, notifier
from tests.factories import make_dag, make_job, make_version, on_assets, store_events, task
from tests.waiting import eventually

__all__ = ["database", "notifier"]


@asynccontextmanager
async def scheduling(database: Database, notifier: Notifier, settings: Settings) -> AsyncIterator[JobSession]:
    """A running scheduler."""
    stop = asyncio.Event()
    async with (
        Listener.open(database, notifier, TOPICS) as listener,
        JobSession.open(database, "scheduler", settings) as job,
        asyncio.TaskGroup() as group,
    ):
        scheduler = Scheduler(
            database=database, notifier=notifier, listener=listener, settings=settings, clock=SystemClock(), job=job
        )
        group.create_task(scheduler.run(stop))
        try:
            yield job
        finally:
            stop.set()


@asynccontextmanager
async def executing(database: Database, notifier: Notifier, *, owner_id: int) -> AsyncIterator[list[AttemptOrder]]:
    """An executor whose tasks succeed as soon as they start; the orders it carried out."""
    done: list[AttemptOrder] = []

    async def work(listener: Listener) -> None:
        while True:
            orders = await tasks.claim(database, owner_id=owner_id, limit=50)
            if not orders:
                await listener.wait(timeout=1.0)
                continue
            attempts = [StartedAttempt(task_instance_id=one.task_instance_id, epoch=one.epoch) for one in orders]
            await tasks.mark_running(database, owner_id=owner_id, attempts=attempts)
            done.extend(orders)
            reports = [AttemptReport.of(order, Succeeded()) for order in orders]
            await tasks.finish(database, notifier, owner_id=owner_id, reports=reports)

    async with Listener.open(database, notifier, ["tasks"]) as listener, asyncio.TaskGroup() as group:
        working = group.create_task(work(listener))
        try:
            yield done
        finally:
            working.cancel()


async def make(database: Database, dag_id: str, schedule: ScheduleSpec, *specs: TaskSpec, limit: int = 16) -> None:
    async with database.hot() as hot:
        await make_dag(hot, dag_id, schedule=schedule, tasks=specs or (task("work"),), max_active_runs=limit)


async def run_states(database: Database, dag_id: str) -> list[str]:
    return [row[0] for row in await fetch(database, "SELECT state FROM dag_run WHERE dag_id = $1 ORDER BY id", dag_id)]


async def test_a_hundred_events_run_one_after_the_other(
    database: Database, notifier: Notifier, settings: Settings
) -> None:
    await make(database, "d", on_assets("a"), task("first"), task("second", "first"), limit=1)
    async with (
        scheduling(database, notifier, settings) as job,
        executing(database, notifier, owner_id=job.id) as done,
    ):
        events = []
        for _ in range(10):
            events += await store_events(database, *["a"] * 10)
            notifier.poke("demand")
        await eventually(lambda: len(done) == 200)

    causes = [order.run.triggering_asset_events[0].id for order in done if order.task_id == "first"]
    assert causes == events
    overlaps = await fetch(
        database,
        "SELECT 1 FROM dag_run one JOIN dag_run other ON other.id > one.id AND other.start_date < one.end_date LIMIT 1",
    )
    assert not overlaps
    assert not await fetch(database, "SELECT 1 FROM demand WHERE state <> 'consumed'")


async def test_what_is_due_by_the_clock_comes_without_a_wake_up(
    database: Database, notifier: Notifier, settings: Settings
) -> None:
    await make(database, "cron", ScheduleSpec(kind=ScheduleKind.CRON, cron="* * * * *"))
    await make(database, "batch", on_assets("a", batch=BatchSpec(max_events=100, max_wait=0.3)))
    await make(database, "later", ScheduleSpec())
    await make(database, "retry", on_assets("b"), task("work", retries=1))
    async with scheduling(database, notifier, settings) as job:
        await fetch(
            database,
            "UPDATE dag SET next_run_at = now() + interval '200 ms', next_logical_date = now() WHERE dag_id = 'cron'",
        )
        await store_events(database, "a", "b")
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        await runs.create_manual(database, notifier, ManualRun(dag_id="later", triggered_by="cli", run_after=soon))
        await eventually(lambda: all_in("running", database, "cron", "batch", "later", "retry"))
        async with executing(database, notifier, owner_id=job.id):
            await eventually(lambda: all_in("success", database, "cron", "batch", "later", "retry"))


async def all_in(state: str, database: Database, *dag_ids: str) -> bool:
    found = [await run_states(database, dag_id) for dag_id in dag_ids]
    return all(states[:1] == [state] for states in found)


async def test_attempts_of_a_scheduler_that_died_are_brought_back(
    database: Database, notifier: Notifier, settings: Settings
) -> None:
    await make(database, "d", on_assets("a"), task("work", retries=1, retry_delay=0.0))
    async with database.hot() as hot:
        dead = await make_job(hot, ended=True)
    await store_events(database, "a")
    planner = Planner(database=database, notifier=notifier, clock=SystemClock())
    await planner.run_once(by_clock=True)
    [order] = await tasks.claim(database, owner_id=dead, limit=1)
    attempt = StartedAttempt(task_instance_id=order.task_instance_id, epoch=order.epoch)
    await tasks.mark_running(database, owner_id=dead, attempts=[attempt])

    async with (
        scheduling(database, notifier, settings) as job,
        executing(database, notifier, owner_id=job.id) as done,
    ):
        await eventually(lambda: len(done) == 1)
        assert done[0].try_number == 2


async def test_a_dag_that_cannot_be_planned_is_left_alone_until_it_changes(
    database: Database, notifier: Notifier
) -> None:
    await make(database, "broken", on_assets("a"))
    await store_events(database, "a")
    await fetch(database, "UPDATE dag_version SET spec = '[]'")
    clock = ManualClock()
    planner = Planner(database=database, notifier=notifier, clock=clock)

    async def warned() -> bool:
        found = await fetch(database, "DELETE FROM dag_warning RETURNING 1")
        return bool(found)

    await planner.run_once(by_clock=True)
    assert await warned()
    await planner.run_once(by_clock=True)
    assert not await warned()
    await clock.advance(2)
    await planner.run_once(by_clock=True)
    assert await warned()
    planner.forget_failures()
    await planner.run_once(by_clock=True)
    assert await warned()
    async with database.hot() as hot:
        await make_version(hot, DagSpec(dag_id="broken", fileloc="p.py", schedule=on_assets("a"), tasks=(task("t"),)))
    planner.forget_failures()
    await planner.run_once(by_clock=True)
    assert await run_states(database, "broken") == ["running"]


async def test_a_flood_of_demand_leaves_room_for_what_is_due(
    database: Database, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.processes.scheduler.planning.LONGEST_LOOK", 0.0)
    await make(database, "d", on_assets("a"), limit=1000)
    await store_events(database, *["a"] * 120)
    planner = Planner(database=database, notifier=notifier, clock=SystemClock())

    assert await planner.run_once(by_clock=False) == 0.0
    assert await planner.run_once(by_clock=False) == 0.0
    assert await planner.run_once(by_clock=False) is None
    assert len(await run_states(database, "d")) == 120


async def test_latency_from_event_to_start(
    database: Database, notifier: Notifier, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    await make(database, "d", on_assets("a"), limit=1000)
    made: list[float] = []
    started: list[float] = []
    async with (
        scheduling(database, notifier, settings) as job,
        Listener.open(database, notifier, ["tasks"]) as listener,
    ):
        for _ in range(100):
            await store_events(database, "a")
            begin = time.perf_counter()
            notifier.poke("demand")
            orders: list[AttemptOrder] = []
            woken = begin
            while not orders:
                await listener.wait(timeout=1.0)
                woken = time.perf_counter()
                orders = await tasks.claim(database, owner_id=job.id, limit=10)
            made.append(woken - begin)
            attempts = [StartedAttempt(task_instance_id=one.task_instance_id, epoch=one.epoch) for one in orders]
            await tasks.mark_running(database, owner_id=job.id, attempts=attempts)
            started.append(time.perf_counter() - begin)
            reports = [AttemptReport.of(order, Succeeded()) for order in orders]
            await tasks.finish(database, notifier, owner_id=job.id, reports=reports)
    with capsys.disabled():
        for name, values in (("run made", made), ("task running", started)):
            ordered = sorted(value * 1000 for value in values)
            print(f"\n{name}: p50 {statistics.median(ordered):.1f} ms, p95 {ordered[94]:.1f} ms", end="")
    assert len(started) == 100
