"""Task attempts on a real database: claims, starts, ends with what follows, losses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.domain.orders import AttemptOrder, Failed, OutletEvent, Skipped, Succeeded
from app.domain.specs import AssetKey, TaskSpec
from app.services import demand, tasks
from app.services.tasks import AttemptReport, Lost, StartedAttempt
from app.services.versions import versions_of
from app.store.database import Database
from app.store.wakeups import Listener, Notifier
from tests.databases import database, fetch, notifier
from tests.factories import DIGEST, make_dag, make_job, on_assets, store_events, task

__all__ = ["database", "notifier"]


class Bench:
    """A scheduler and an executor, one step at a time."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self.database = database
        self.notifier = notifier
        self.owner = 0

    async def make(self, dag_id: str, *specs: TaskSpec, schedule: str = "a", **options: Any) -> None:
        async with self.database.hot() as hot:
            if not self.owner:
                self.owner = await make_job(hot)
            await make_dag(hot, dag_id, schedule=on_assets(schedule), tasks=specs, **options)

    async def start(self, dag_id: str, *specs: TaskSpec, runs: int = 1, **options: Any) -> None:
        await self.make(dag_id, *specs, **options)
        await store_events(self.database, *["a"] * runs, extra='{"from_trigger": true, "payload": {"n": 1}}')
        await demand.plan(self.database, self.notifier)

    async def claim(self, limit: int = 100) -> list[AttemptOrder]:
        return await tasks.claim(self.database, owner_id=self.owner, limit=limit)

    async def begin(self, limit: int = 100) -> list[AttemptOrder]:
        orders = await self.claim(limit)
        attempts = [StartedAttempt(task_instance_id=one.task_instance_id, epoch=one.epoch, pid=1) for one in orders]
        started = await tasks.mark_running(self.database, owner_id=self.owner, attempts=attempts)
        assert started == {one.task_instance_id for one in orders}
        return orders

    async def end(self, order: AttemptOrder, outcome: Any) -> str | None:
        [result] = await tasks.finish(
            self.database, self.notifier, owner_id=self.owner, reports=[AttemptReport.of(order, outcome)]
        )
        return result.state

    async def states(self, dag_id: str = "d") -> dict[str, str]:
        rows = await fetch(self.database, "SELECT task_id, state FROM task_instance WHERE dag_id = $1", dag_id)
        return {row[0]: row[1] for row in rows}

    async def run_states(self, dag_id: str = "d") -> list[str]:
        rows = await fetch(self.database, "SELECT state FROM dag_run WHERE dag_id = $1 ORDER BY id", dag_id)
        return [row[0] for row in rows]


@pytest.fixture
def bench(database: Database, notifier: Notifier) -> Bench:
    return Bench(database, notifier)


async def test_an_order_carries_all_that_the_attempt_needs(bench: Bench) -> None:
    await bench.start("d", task("work", execution_timeout=5.0, retries=2), schedule="a & b")
    events = await store_events(bench.database, "b")
    await demand.plan(bench.database, bench.notifier)

    [order] = await bench.claim()
    assert (order.task_id, order.try_number, order.max_tries, order.epoch) == ("work", 1, 2, 1)
    assert (order.bundle_digest, order.entry, order.execution_timeout) == (DIGEST, "pipeline.py", 5.0)
    assert order.run.run_type == "asset_triggered"
    assert order.run.logical_date is None
    assert [event.asset.name for event in order.run.triggering_asset_events] == ["a", "b"]
    assert order.run.triggering_asset_events[0].extra == {"from_trigger": True, "payload": {"n": 1}}
    assert order.run.triggering_asset_events[1].id == events[0]


async def test_a_run_goes_from_its_first_task_to_its_end(bench: Bench) -> None:
    await bench.start("d", task("first"), task("second", "first"))

    [first] = await bench.begin()
    assert await bench.end(first, Succeeded(xcoms={"return_value": '"x"'})) == "success"
    assert await bench.states() == {"first": "success", "second": "scheduled"}
    [second] = await bench.begin()
    assert second.upstream_states == {"first": "success"}
    [value] = await tasks.pull_xcoms(
        bench.database, dag_id="d", run_id=second.run.run_id, task_ids=["first"], key="return_value"
    )
    assert value.value == '"x"'
    assert await bench.end(second, Skipped(reason="nothing to do")) == "skipped"
    assert await bench.run_states() == ["success"]

    changes = await fetch(
        bench.database, "SELECT from_state, to_state FROM state_change WHERE subject = 'task' ORDER BY id"
    )
    assert [tuple(change) for change in changes] == [
        (None, "scheduled"),
        ("scheduled", "queued"),
        ("queued", "running"),
        ("running", "success"),
        ("none", "scheduled"),
        ("scheduled", "queued"),
        ("queued", "running"),
        ("running", "skipped"),
    ]


async def test_a_failure_cascades_and_fails_the_run(bench: Bench) -> None:
    await bench.start("d", task("a"), task("b", "a"), task("c", "b"), task("tidy", "c", trigger_rule="all_done"))

    [first] = await bench.begin()
    assert await bench.end(first, Failed(error="boom\0")) == "failed"
    assert await bench.states() == {"a": "failed", "b": "upstream_failed", "c": "upstream_failed", "tidy": "scheduled"}
    [tidy] = await bench.begin()
    await bench.end(tidy, Succeeded())
    assert await bench.run_states() == ["success"]
    [row] = await fetch(bench.database, "SELECT note FROM task_instance WHERE task_id = 'b'")
    assert "a failed" in row["note"]


async def test_retries_by_the_rule_and_then_fails(bench: Bench) -> None:
    await bench.start("d", task("work", retries=1, retry_delay=0.0))

    [order] = await bench.begin()
    assert await bench.end(order, Failed(error="first", xcoms={"k": "1"})) == "up_for_retry"
    assert await bench.run_states() == ["running"]
    assert await tasks.requeue_due(bench.database, bench.notifier) == 1
    [again] = await bench.begin()
    assert (again.try_number, again.epoch) == (2, 2)
    assert await bench.end(again, Failed(error="second")) == "failed"
    assert await bench.run_states() == ["failed"]


async def test_a_retry_waits_for_its_delay_and_forgets_what_was_pushed(bench: Bench) -> None:
    await bench.start("d", task("work", retries=1, retry_delay=3600.0))
    [order] = await bench.begin()
    assert await tasks.push_xcoms(bench.database, order, {"k": "1"})
    await bench.end(order, Failed(error="first"))

    assert await tasks.requeue_due(bench.database, bench.notifier) == 0
    assert not await tasks.push_xcoms(bench.database, order, {"k": "2"})
    await fetch(bench.database, "UPDATE task_instance SET next_attempt_at = now()")
    assert await tasks.requeue_due(bench.database, bench.notifier) == 1
    assert not await fetch(bench.database, "SELECT 1 FROM xcom")


async def test_an_author_may_forbid_retries(bench: Bench) -> None:
    await bench.start("d", task("work", retries=3))
    [order] = await bench.begin()

    assert await bench.end(order, Failed(error="for good", retry=False)) == "failed"


async def test_stale_reports_change_nothing(bench: Bench) -> None:
    await bench.start("d", task("work", retries=5, retry_delay=0.0))
    [old] = await bench.begin()
    assert await tasks.fail_lost(bench.database, bench.notifier, owner_ids=[bench.owner], reason="gone") == 1
    assert await bench.end(old, Succeeded()) is None
    await tasks.requeue_due(bench.database, bench.notifier)
    [new] = await bench.begin()

    assert await bench.end(old, Succeeded(xcoms={"k": "1"})) is None
    other = tasks.finish(
        bench.database, bench.notifier, owner_id=bench.owner + 1, reports=[AttemptReport.of(new, Succeeded())]
    )
    assert [result.is_stale for result in await other] == [True]
    assert await bench.states() == {"work": "running"}
    assert not await fetch(bench.database, "SELECT 1 FROM xcom")
    assert await bench.end(new, Succeeded()) == "success"
    assert await bench.end(new, Failed(error="late")) is None


async def test_a_report_that_overtakes_the_record_of_its_start_counts(bench: Bench) -> None:
    await bench.start("d", task("work"))
    [order] = await bench.claim()

    assert await bench.end(order, Succeeded()) == "success"
    changes = await fetch(bench.database, "SELECT to_state FROM state_change WHERE subject = 'task' ORDER BY id")
    assert [change[0] for change in changes] == ["scheduled", "queued", "running", "success"]


async def test_a_lost_owner_gives_back_what_had_not_started(bench: Bench) -> None:
    await bench.start("d", task("work"), runs=2)
    await bench.begin(1)
    await bench.claim(1)
    await fetch(bench.database, "UPDATE job SET ended_at = now()")

    assert await tasks.fail_lost_of_ended(bench.database, bench.notifier) == 1
    assert await bench.run_states() == ["failed", "running"]
    rows = await fetch(bench.database, "SELECT state, try_number FROM task_instance ORDER BY id")
    assert [tuple(row) for row in rows] == [("failed", 1), ("scheduled", 1)]
    assert await tasks.fail_lost_of_ended(bench.database, bench.notifier) == 0


async def test_a_stopping_executor_gives_back_its_claims(bench: Bench) -> None:
    await bench.start("d", task("work"), runs=3)
    claimed = await bench.claim(2)

    assert await tasks.give_back(bench.database, bench.notifier, owner_id=bench.owner, but=claimed[1:]) == 1
    assert await tasks.give_back(bench.database, bench.notifier, owner_id=bench.owner) == 1
    started = await tasks.mark_running(
        bench.database,
        owner_id=bench.owner,
        attempts=[StartedAttempt(task_instance_id=one.task_instance_id, epoch=one.epoch) for one in claimed],
    )
    assert started == set()
    assert len(await bench.claim()) == 3


async def test_a_start_whose_answer_was_lost_may_be_recorded_again(bench: Bench) -> None:
    await bench.start("d", task("t"))
    [order] = await bench.begin()
    again = StartedAttempt(task_instance_id=order.task_instance_id, epoch=order.epoch, pid=1)
    assert await tasks.mark_running(bench.database, owner_id=bench.owner, attempts=[again]) == {order.task_instance_id}

    old = StartedAttempt(task_instance_id=order.task_instance_id, epoch=order.epoch - 1, pid=1)
    assert await tasks.mark_running(bench.database, owner_id=bench.owner, attempts=[old]) == set()
    assert await tasks.mark_running(bench.database, owner_id=bench.owner + 1, attempts=[again]) == set()
    await bench.end(order, Succeeded())
    assert await tasks.mark_running(bench.database, owner_id=bench.owner, attempts=[again]) == set()


async def test_outlet_events_and_the_end_of_their_task_are_one(bench: Bench) -> None:
    await bench.start("producer", task("work"))
    await bench.make("consumer", task("eat"), schedule="out")
    [order] = await bench.begin()
    outlet = OutletEvent(asset=AssetKey(name="out", uri="x://out"), extra={"rows": 3})
    unknown = OutletEvent(asset=AssetKey(name="nowhere", uri="x://nowhere"), extra={})
    await bench.end(order, Succeeded(outlet_events=(outlet, unknown)))
    await demand.plan(bench.database, bench.notifier)

    [eat] = await bench.claim()
    [event] = eat.run.triggering_asset_events
    assert event.extra == {"rows": 3}
    assert (event.source_dag_id, event.source_task_id) == ("producer", "work")
    assert event.source_run_id == order.run.run_id


async def test_one_result_that_cannot_be_stored_fails_alone(bench: Bench) -> None:
    await bench.start("d", task("work"), runs=3)
    orders = await bench.begin()
    bad = Succeeded(xcoms={"return_value": "{this is no JSON"})
    outcomes = [Succeeded(xcoms={"return_value": '"\\u0000"'}), bad, Succeeded()]
    reports = [AttemptReport.of(order, outcome) for order, outcome in zip(orders, outcomes, strict=True)]

    results = await tasks.finish(bench.database, bench.notifier, owner_id=bench.owner, reports=reports)
    assert [result.state for result in results] == ["success", "failed", "success"]
    [row] = await fetch(bench.database, "SELECT note FROM task_instance WHERE state = 'failed'")
    assert "could not be stored" in row["note"]


async def test_claims_keep_to_the_limit_of_active_tasks(bench: Bench) -> None:
    await bench.start("d", *(task(f"t{n}") for n in range(5)), max_active_tasks=2)

    assert len(await bench.claim()) == 2
    assert len(await bench.claim()) == 0
    [first, _] = await fetch(bench.database, "SELECT id, epoch, task_id FROM task_instance WHERE state = 'queued'")
    await fetch(
        bench.database,
        "UPDATE task_instance SET state = 'success', owner_id = NULL, end_date = now() WHERE id = $1",
        first["id"],
    )
    assert len(await bench.claim()) == 1


async def test_executors_claiming_at_once_keep_to_the_limit_together(bench: Bench) -> None:
    await bench.start("d", *(task(f"t{n}") for n in range(40)), max_active_tasks=10)
    found: list[AttemptOrder] = []

    async def executor() -> None:
        for _ in range(5):
            found.extend(await bench.claim(3))

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(executor())
    assert len({order.task_instance_id for order in found}) == len(found) == 10


async def test_claims_go_by_priority_then_fairly_then_by_age(bench: Bench) -> None:
    await bench.start("flood", *(task(f"t{n:02}") for n in range(20)), max_active_tasks=100)
    await bench.make("quiet", task("calm"), task("urgent", priority_weight=9), schedule="b")
    await store_events(bench.database, "b")
    await demand.plan(bench.database, bench.notifier)

    orders = await bench.claim(4)
    assert [order.task_id for order in orders] == ["urgent", "t00", "calm", "t01"] or [
        order.task_id for order in orders
    ] == ["urgent", "t00", "t01", "calm"]


async def test_nothing_of_a_paused_dag_is_claimed(bench: Bench) -> None:
    await bench.start("d", task("work"))
    await fetch(bench.database, "UPDATE dag SET is_paused = true")
    assert await bench.claim() == []
    await fetch(bench.database, "UPDATE dag SET is_paused = false")
    assert len(await bench.claim()) == 1


async def test_the_end_of_a_run_wakes_who_starts_the_next(bench: Bench) -> None:
    await bench.start("d", task("work"), runs=2, max_active_runs=1)
    [order] = await bench.begin()
    async with Listener.open(bench.database, bench.notifier, ["runs"]) as listener:
        await asyncio.sleep(0)
        await listener.wait(timeout=1.0)
        await bench.end(order, Succeeded())
        assert "runs" in await listener.wait(timeout=30)
    assert (await demand.plan(bench.database, bench.notifier)).runs == 1


async def test_a_run_whose_version_cannot_be_read_fails_instead_of_blocking_others(
    database: Database, notifier: Notifier
) -> None:
    first = Bench(database, notifier)
    await first.start("broken", task("work"), task("after", "work"))
    await first.start("sound", task("work"))
    await fetch(database, "UPDATE dag_version SET spec = '[]' WHERE dag_id = 'broken'")
    versions_of(database).__init__()  # type: ignore[misc]  # as in a process just started

    orders = await first.claim()
    assert [order.run.dag_id for order in orders] == ["sound"]
    assert (await first.states("broken"))["work"] == "failed"


async def test_an_attempt_lost_by_its_executor_is_retried(bench: Bench) -> None:
    await bench.start("d", task("work", retries=1, retry_delay=0.0))
    [order] = await bench.begin()

    assert await bench.end(order, Lost(reason="killed by signal 9")) == "up_for_retry"
    [row] = await fetch(bench.database, "SELECT note FROM task_instance")
    assert row["note"] == "killed by signal 9"


async def test_an_attempt_lost_before_it_started_costs_no_try_but_not_for_ever(bench: Bench) -> None:
    await bench.start("d", task("work"))
    for _ in range(10):
        [order] = await bench.claim()
        assert await bench.end(order, Lost(reason="no process to be had")) == "scheduled"

    [order] = await bench.claim()
    assert await bench.end(order, Lost(reason="no process to be had")) == "failed"
    assert await bench.run_states() == ["failed"]
