"""Planning as a machine: any interleaving of arrivals, planners, crashes, ends, pauses and edits keeps its promises."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.domain.conditions import clauses
from app.domain.demand import Arrival, batch_groups, group_arrivals
from app.domain.specs import BatchSpec, DagSpec, ScheduleSpec
from app.services import demand
from app.store.database import Database
from app.store.events import hot_of
from app.store.wakeups import Notifier
from tests.databases import fetch
from tests.factories import make_asset, make_dag, make_version, on_assets, parse_condition, store_events, task
from tests.postgres import PostgresForTests

CONDITIONS = ["a", "a | b", "a & b", "a & b | c", "a & b | b & c", "a & b & c"]
ASSETS = "abc"


class PlanningMachine(RuleBasedStateMachine):
    """One DAG, its events, and up to three schedulers. Assets are named anew in each example."""

    runner: ClassVar[asyncio.Runner]
    database: ClassVar[Database]
    numbers: ClassVar[itertools.count[int]] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.numbers)
        self.dag_id = f"dag{self.number}"
        self.notifier = Notifier(self.database)
        self.edited = False
        self.paused = False

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def schedule(self, condition: str, batch: int | None) -> ScheduleSpec:
        renamed = "".join(f"{letter}{self.number}" if letter in ASSETS else letter for letter in condition)
        return on_assets(renamed, batch=BatchSpec(max_events=batch) if batch else None)

    @initialize(condition=st.sampled_from(CONDITIONS), limit=st.integers(1, 3), batch=st.none() | st.integers(1, 4))
    def make(self, condition: str, limit: int, batch: int | None) -> None:
        self.limit = limit
        self.spec = self.schedule(condition, batch)

        async def work() -> None:
            async with self.database.hot() as hot:
                for letter in ASSETS:
                    await make_asset(hot, f"{letter}{self.number}")
                await make_dag(hot, self.dag_id, schedule=self.spec, max_active_runs=limit)

        self.do(work())

    async def store(self, letters: str) -> None:
        await store_events(self.database, *(f"{letter}{self.number}" for letter in letters))

    async def plan(self) -> None:
        outcome = await demand.plan(self.database, self.notifier)
        assert not outcome.failed

    @rule(letters=st.text(alphabet=ASSETS, min_size=1, max_size=5))
    def arrive(self, letters: str) -> None:
        self.do(self.store(letters))

    @rule(first=st.text(alphabet=ASSETS, max_size=4), second=st.text(alphabet=ASSETS, max_size=4))
    def arrive_while_three_plan(self, first: str, second: str) -> None:
        async def work() -> None:
            await asyncio.gather(
                self.plan(), self.store(first or "a"), self.plan(), self.store(second or "b"), self.plan()
            )

        self.do(work())

    @rule(steps=st.integers(0, 40))
    def plan_and_crash(self, steps: int) -> None:
        async def work() -> None:
            planner = asyncio.ensure_future(self.plan())
            for _ in range(steps):
                await asyncio.sleep(0)
            planner.cancel()
            await asyncio.wait([planner])

        self.do(work())

    @rule(count=st.integers(1, 3))
    def end_runs(self, count: int) -> None:
        self.do(self.end(count))

    async def end(self, count: int) -> int:
        rows = await fetch(
            self.database,
            """
            UPDATE dag_run SET state = 'success', end_date = now()
            WHERE id IN (SELECT id FROM dag_run WHERE dag_id = $1 AND state = 'running' ORDER BY id LIMIT $2)
            RETURNING id
            """,
            self.dag_id,
            count,
        )
        return len(rows)

    @rule()
    def pause_or_unpause(self) -> None:
        self.paused = not self.paused
        self.do(fetch(self.database, "UPDATE dag SET is_paused = $2 WHERE dag_id = $1", self.dag_id, self.paused))

    @rule(condition=st.sampled_from(CONDITIONS), batch=st.none() | st.integers(1, 4))
    def edit(self, condition: str, batch: int | None) -> None:
        self.edited = True
        self.spec = self.schedule(condition, batch)

        async def work() -> None:
            async with self.database.transaction() as connection:
                hot = await hot_of(connection)
                spec = DagSpec(dag_id=self.dag_id, fileloc="p.py", schedule=self.spec, tasks=(task("work"),))
                await make_version(hot, spec)
                rows = await hot.fetch("SELECT asset_id FROM asset_reference WHERE dag_id = $1", self.dag_id)
                await demand.drop_unscheduled(connection, self.dag_id, [row[0] for row in rows])

        self.do(work())

    @rule(letter=st.sampled_from(ASSETS))
    def delete_queued(self, letter: str) -> None:
        async def work() -> None:
            [row] = await fetch(self.database, "SELECT id FROM asset WHERE name = $1", f"{letter}{self.number}")
            if await demand.delete_queued(self.database, self.notifier, dag_id=self.dag_id, asset_id=row["id"]):
                self.edited = True

        self.do(work())

    @invariant()
    def each_event_has_one_fate(self) -> None:
        rows = self.do(
            fetch(
                self.database,
                """
                SELECT d.state, count(c.event_id) AS runs, count(g.id) AS groups
                FROM demand d LEFT JOIN dag_run_event c ON c.dag_id = d.dag_id AND c.event_id = d.event_id
                LEFT JOIN demand_group g ON g.id = d.group_id
                WHERE d.dag_id = $1 GROUP BY d.event_id, d.state
                """,
                self.dag_id,
            )
        )
        for row in rows:
            assert row["runs"] == (row["state"] == "consumed")
            assert row["groups"] == (row["state"] in {"consumed", "grouped"})

    @invariant()
    def every_run_has_a_cause_and_the_limit_is_kept(self) -> None:
        rows = self.do(
            fetch(
                self.database,
                """
                SELECT r.state, count(c.event_id) AS causes, count(*) FILTER (WHERE c.triggering) AS triggering
                FROM dag_run r LEFT JOIN dag_run_event c ON c.dag_run_id = r.id
                WHERE r.dag_id = $1 GROUP BY r.id, r.state
                """,
                self.dag_id,
            )
        )
        assert all(row["causes"] >= 1 and row["triggering"] == 1 for row in rows)
        assert sum(row["state"] == "running" for row in rows) <= self.limit

    def teardown(self) -> None:
        if hasattr(self, "spec"):
            self.do(self.settle())

    async def settle(self) -> None:
        """With nothing more arriving, everything that can run has run, in the order of arrival."""
        await fetch(self.database, "UPDATE dag SET is_paused = false WHERE dag_id = $1", self.dag_id)
        await self.plan()
        while await self.end(1000):
            await self.plan()
        rows = await fetch(
            self.database,
            """
            SELECT d.arrival, d.event_id, a.name, d.state, c.dag_run_id FROM demand d JOIN asset a ON a.id = d.asset_id
            LEFT JOIN dag_run_event c ON c.dag_id = d.dag_id AND c.event_id = d.event_id
            WHERE d.dag_id = $1 ORDER BY d.arrival
            """,
            self.dag_id,
        )
        assert self.spec.condition is not None
        names = [frozenset(key.name for key in clause) for clause in clauses(self.spec.condition)]
        pending = {row["name"] for row in rows if row["state"] == "pending"}
        assert not any(clause <= pending for clause in names)
        if not self.edited:
            found: dict[int, list[int]] = {}
            for row in rows:
                if row["dag_run_id"] is not None:
                    found.setdefault(row["dag_run_id"], []).append(row["event_id"])
            assert [found[run] for run in sorted(found)] == self.expected(names, rows)
        await fetch(self.database, "UPDATE dag SET is_active = false WHERE dag_id = $1", self.dag_id)

    def expected(self, names: list[frozenset[str]], rows: list[Any]) -> list[list[int]]:
        moment = datetime.now(UTC)
        arrivals = [
            Arrival(position=row["arrival"], event_id=row["event_id"], asset=row["name"], at=moment)
            for row in rows
            if row["state"] != "skipped"
        ]
        batches = batch_groups(self.spec.batch, group_arrivals(names, arrivals).groups, now=moment)
        return [
            sorted(arrival.event_id for group in batch.groups for arrival in group.arrivals)
            for batch in batches
            if batch.closed
        ]


def test_conditions_are_parsed_as_meant() -> None:
    assert clauses(parse_condition("a & b | c"))[0] == set(clauses(parse_condition("a & b"))[0])


@pytest.mark.timeout(300)
def test_planning_keeps_its_promises(postgres: PostgresForTests) -> None:
    with asyncio.Runner() as runner:
        name = runner.run(postgres.create())
        database = runner.run(Database.connect(postgres.url(name)))
        PlanningMachine.runner, PlanningMachine.database = runner, database
        try:
            run_state_machine_as_test(
                PlanningMachine,
                settings=settings(
                    max_examples=25,
                    stateful_step_count=15,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(database.close())
            runner.run(postgres.drop(name))
