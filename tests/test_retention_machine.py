"""Retention as a machine: whatever is removed and when, nothing that is needed goes, and no promise is broken."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.domain.conditions import clauses
from app.domain.retention import Kind
from app.domain.specs import BatchSpec
from app.kernel.settings import load_settings
from app.processes.retention import clean, cleanings
from app.services import demand
from app.services.events import Delivery, DeliveryItem, Refusal, store_batch
from app.services.retention import server_time
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.databases import fetch
from tests.factories import make_asset, make_dag, make_job, on_assets, store_events
from tests.postgres import PostgresForTests

CONDITIONS = ["a", "a | b", "a & b", "a & b | c"]
ASSETS = "abc"
KEYS = st.sampled_from([f"k{number}" for number in range(6)])
PERIOD = 14
PASSED = st.sampled_from([0.5, 3, 10, 15])
AGED = """
    UPDATE asset_event SET "timestamp" = "timestamp" - $1::interval;
    UPDATE event_identity SET created_at = created_at - $1::interval;
    UPDATE idempotency_key SET created_at = created_at - $1::interval;
    UPDATE dead_letter SET created_at = created_at - $1::interval;
    UPDATE state_change SET at = at - $1::interval;
    UPDATE demand SET created_at = created_at - $1::interval;
    UPDATE dag_run SET end_date = end_date - $1::interval, start_date = start_date - $1::interval;
    UPDATE job SET ended_at = ended_at - $1::interval;
"""
NEEDED = [
    """
    SELECT d.dag_id, d.event_id, d.state, d.group_id, e.asset_id, b.extra::text FROM demand d
    JOIN asset_event e ON e.id = d.event_id JOIN event_body b ON b.id = e.body_id
    WHERE d.state IN ('pending', 'grouped') AND $1::interval IS NOT NULL ORDER BY 1, 2
    """,
    """
    SELECT r.id, r.state, c.event_id, c.triggering, b.extra::text FROM dag_run r
    LEFT JOIN dag_run_event c ON c.dag_run_id = r.id LEFT JOIN asset_event e ON e.id = c.event_id
    LEFT JOIN event_body b ON b.id = e.body_id
    WHERE r.end_date IS NULL OR r.end_date >= now() - $1::interval ORDER BY 1, 3
    """,
    'SELECT id FROM asset_event WHERE "timestamp" >= now() - $1::interval ORDER BY 1',
    """
    SELECT id FROM dead_letter
    WHERE created_at >= now() - $1::interval OR identity IS NOT NULL AND (
        created_at >= now() - interval '14 days'
        OR EXISTS (SELECT FROM trigger t WHERE t.id = trigger_id AND NOT t.acknowledges)) ORDER BY 1
    """,
    """
    SELECT i.* FROM event_identity i
    WHERE $1::interval IS NOT NULL AND (
        created_at >= now() - interval '14 days'
        OR EXISTS (SELECT FROM asset_watcher w JOIN trigger t ON t.id = w.trigger_id
                   WHERE w.asset_id = i.asset_id AND NOT t.acknowledges)) ORDER BY 1, 2
    """,
    "SELECT id, owner_id FROM trigger WHERE $1::interval IS NOT NULL ORDER BY 1",
]
ORPHANS = [
    "SELECT 1 FROM dag_run r WHERE NOT EXISTS (SELECT FROM dag_run_event c WHERE c.dag_run_id = r.id)",
    "SELECT 1 FROM dag_run r WHERE NOT EXISTS (SELECT FROM task_instance t WHERE t.dag_run_id = r.id)",
    "SELECT 1 FROM event_body b WHERE NOT EXISTS (SELECT FROM asset_event e WHERE e.body_id = b.id)",
    "SELECT 1 FROM demand_group g WHERE NOT EXISTS (SELECT FROM demand d WHERE d.group_id = g.id)",
    """
    SELECT 1 FROM state_change s
    WHERE subject = 'run' AND NOT EXISTS (SELECT FROM dag_run r WHERE r.id = s.subject_id)
       OR subject = 'task' AND NOT EXISTS (SELECT FROM task_instance t WHERE t.id = s.subject_id)
    """,
]
EVERYTHING = "asset, trigger, dag, job, event_body, dead_letter, idempotency_key, state_change, leadership, bundle"


class RetentionMachine(RuleBasedStateMachine):
    """Two DAGs on three assets; a queue, which acknowledges, and a folder, which does not, feed the first two."""

    runner: ClassVar[asyncio.Runner]
    database: ClassVar[Database]
    #: What was removed in all examples: a run in which nothing goes shows nothing.
    total: ClassVar[Counter[Kind]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.notifier = Notifier(self.database)
        self.made = False
        #: Days since a message first made an event, by trigger and key.
        self.known: dict[tuple[int, str], float] = {}
        #: Every cause ever seen, as (DAG, event): {run}.
        self.causes: dict[tuple[str, int], set[int]] = {}
        self.demanded: set[tuple[str, int]] = set()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize(condition=st.sampled_from(CONDITIONS), batch=st.none() | st.integers(1, 3), limit=st.integers(1, 3))
    def make(self, condition: str, batch: int | None, limit: int) -> None:
        self.schedules = {
            "one": on_assets(condition, batch=BatchSpec(max_events=batch) if batch else None),
            "two": on_assets("a | b | c"),
        }

        async def work() -> None:
            async with self.database.hot() as hot:
                await hot.execute(f"TRUNCATE {EVERYTHING} CASCADE")
                ids = {letter: await make_asset(hot, letter) for letter in ASSETS}
                for dag_id, schedule in self.schedules.items():
                    await make_dag(hot, dag_id, schedule=schedule, max_active_runs=limit)
                self.job = await make_job(hot, job_type="triggerer")
                self.triggers = {
                    letter: await _trigger(hot, ids[letter], owner=self.job, acknowledges=letter == "a")
                    for letter in "ab"
                }

        self.do(work())
        self.made = True

    # What happens in the world.

    @rule(letters=st.text(alphabet=ASSETS, min_size=1, max_size=5))
    def post(self, letters: str) -> None:
        self.do(store_events(self.database, *letters))

    @rule(letter=st.sampled_from("ab"), keys=st.lists(KEYS, min_size=1, max_size=3, unique=True))
    def deliver(self, letter: str, keys: list[str]) -> None:
        for key in keys:
            self.do(self.deliver_one(letter, key))

    async def deliver_one(self, letter: str, key: str) -> None:
        trigger_id, watcher_id = self.triggers[letter]
        item = DeliveryItem(payload=json.dumps(key), watchers=(watcher_id,), key=key, source="s")
        delivery = Delivery(trigger_id=trigger_id, epoch=0, items=(item,))
        [answer] = await store_batch(self.database, self.notifier, self.job, deliveries=[delivery])
        age = self.known.get((trigger_id, key))
        if age is None:
            assert answer.events == 1
        elif age < PERIOD or letter == "b":
            assert (answer.events, answer.duplicates) == (0, 1), "a redelivery was not recognised"
        if answer.events:
            self.known[trigger_id, key] = 0.0

    @rule(letter=st.sampled_from("ab"), key=st.none() | KEYS)
    def refuse(self, letter: str, key: str | None) -> None:
        trigger_id, _ = self.triggers[letter]
        item = DeliveryItem(payload=None, key=key, source="s", refusals=(Refusal(code="nan", reason="no"),))
        delivery = Delivery(trigger_id=trigger_id, epoch=0, items=(item,))
        self.do(store_batch(self.database, self.notifier, self.job, deliveries=[delivery]))

    @rule()
    def plan(self) -> None:
        self.do(self.plan_once())

    async def plan_once(self) -> None:
        outcome = await demand.plan(self.database, self.notifier)
        assert not outcome.failed
        await self.note()

    @rule(count=st.integers(1, 6))
    def run(self, count: int) -> None:
        self.do(self.plan_once())
        self.do(self.end(count))

    async def end(self, count: int) -> int:
        ended = await fetch(
            self.database,
            """
            WITH ended AS (
                UPDATE dag_run SET state = 'success', end_date = now()
                WHERE id IN (SELECT id FROM dag_run WHERE state = 'running' ORDER BY id LIMIT $1) RETURNING id
            ), instances AS (
                UPDATE task_instance SET state = 'success', end_date = now()
                WHERE dag_run_id IN (SELECT id FROM ended)
            )
            SELECT id FROM ended
            """,
            count,
        )
        return len(ended)

    async def pass_time(self, days: float) -> None:
        for statement in AGED.strip().split(";\n"):
            await fetch(self.database, statement.rstrip(";"), timedelta(days=days))
        self.known = {name: age + days for name, age in self.known.items()}

    # What is removed.

    @rule(passed=PASSED, days=st.sampled_from([0, 1, 5, 12, 20]), size=st.sampled_from([10, 500]))
    def clean(self, passed: float, days: float, size: int) -> None:
        self.do(self.pass_time(passed))
        before = self.do(self.needed(days))
        wanted = self.do(self.clean_all(days, size=size, dry_run=True))
        assert self.do(self.needed(days)) == before
        removed = self.do(self.clean_all(days, size=size))
        assert self.do(self.needed(days)) == before
        # More events go than could when the runs that named them were still there.
        assert removed.pop(Kind.EVENTS) >= wanted.pop(Kind.EVENTS)
        assert removed == wanted
        assert not any(self.do(self.clean_all(days, size=size)).values())

    @rule(passed=PASSED, days=st.sampled_from([0, 5]), letters=st.text(ASSETS, min_size=1, max_size=4), key=KEYS)
    def clean_under_load(self, passed: float, days: float, letters: str, key: str) -> None:
        async def work() -> None:
            await self.pass_time(passed)
            await asyncio.gather(
                self.clean_all(days, size=10),
                self.plan_once(),
                store_events(self.database, *letters),
                self.deliver_one("a", key),
                self.clean_all(days, size=10),
                self.deliver_one("b", key),
                self.plan_once(),
            )
            await self.note()

        self.do(work())

    @rule(passed=PASSED, days=st.sampled_from([0, 5]), steps=st.integers(0, 60))
    def clean_and_crash(self, passed: float, days: float, steps: int) -> None:
        async def work() -> None:
            await self.pass_time(passed)
            cleaner = asyncio.ensure_future(self.clean_all(days, size=10))
            for _ in range(steps):
                await asyncio.sleep(0)
            cleaner.cancel()
            await asyncio.wait([cleaner])

        self.do(work())

    async def clean_all(self, days: float, *, size: int, dry_run: bool = False) -> dict[Kind, int]:
        now = await server_time(self.database)
        before = dict.fromkeys(Kind, now - timedelta(days=days))
        work = cleanings(before, now=now, settings=load_settings(), size=size, dry_run=dry_run)
        removed = await clean(self.database, work)
        if not dry_run:
            self.total.update(removed)
        return removed

    async def needed(self, days: float) -> list[Any]:
        """Everything that must be there after cleaning what is older than ``days`` as it was before."""
        return [[tuple(row) for row in await fetch(self.database, query, timedelta(days=days))] for query in NEEDED]

    # What always holds.

    async def note(self) -> None:
        """Remember causes and demand before any of them may be removed."""
        for row in await fetch(self.database, "SELECT dag_id, event_id, dag_run_id FROM dag_run_event"):
            self.causes.setdefault((row["dag_id"], row["event_id"]), set()).add(row["dag_run_id"])
        self.demanded |= {tuple(row) for row in await fetch(self.database, "SELECT dag_id, event_id FROM demand")}

    @invariant()
    def one_event_starts_one_run(self) -> None:
        self.do(self.note())
        assert all(len(runs) == 1 for runs in self.causes.values())

    @invariant()
    def every_run_has_its_causes_and_nothing_is_orphaned(self) -> None:
        for query in ORPHANS:
            assert not self.do(fetch(self.database, query)), query

    def teardown(self) -> None:
        if self.made:
            self.do(self.settle())

    async def settle(self) -> None:
        """With nothing more arriving, each event of each consumer was consumed once, or waits for an incomplete
        clause."""
        await self.plan_once()
        while await self.end(1000):
            await self.plan_once()
        rows = await fetch(
            self.database,
            "SELECT d.dag_id, d.event_id, a.name FROM demand d JOIN asset a ON a.id = d.asset_id WHERE d.state IN "
            "('pending', 'grouped')",
        )
        waiting = {(row["dag_id"], row["event_id"]) for row in rows}
        assert self.demanded - waiting == self.causes.keys()
        for dag_id, schedule in self.schedules.items():
            assert schedule.condition is not None
            names = {row["name"] for row in rows if row["dag_id"] == dag_id}
            if schedule.batch is None:
                assert not any({key.name for key in clause} <= names for clause in clauses(schedule.condition))


async def _trigger(hot: Any, asset_id: int, *, owner: int, acknowledges: bool) -> tuple[int, int]:
    """A trigger that ``owner`` runs, and its watcher on the asset."""
    trigger_id: int = await hot.fetchval(
        """
        INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status, owner_id, acknowledges)
        VALUES ('asset', $1, 'x.Y', '', true, 'running', $2, $3) RETURNING id
        """,
        f"{asset_id:064}",
        owner,
        acknowledges,
    )
    watcher_id: int = await hot.fetchval(
        "INSERT INTO asset_watcher (asset_id, trigger_id, name) VALUES ($1, $2, 'w') RETURNING id", asset_id, trigger_id
    )
    return trigger_id, watcher_id


@pytest.mark.timeout(400)
def test_retention_keeps_the_promises(postgres: PostgresForTests) -> None:
    with asyncio.Runner() as runner:
        name = runner.run(postgres.create())
        database = runner.run(Database.connect(postgres.url(name)))
        RetentionMachine.runner, RetentionMachine.database = runner, database
        try:
            run_state_machine_as_test(
                RetentionMachine,
                settings=settings(
                    max_examples=20,
                    stateful_step_count=20,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
            for kind in (Kind.RUNS, Kind.EVENTS, Kind.DEAD_LETTERS, Kind.IDENTITIES):
                assert RetentionMachine.total[kind], f"no {kind} were removed"
        finally:
            runner.run(database.close())
            runner.run(postgres.drop(name))
