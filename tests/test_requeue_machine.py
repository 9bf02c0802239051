"""Requeueing as a machine: whatever meets whatever, a message makes at most one event of an asset."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography.fernet import Fernet
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.domain.deliveries import Delivery, DeliveryItem, Refusal, Verdict
from app.kernel.errors import RequestRefused
from app.kernel.settings import Settings, load_settings
from app.processes.requeueing import Requeuer
from app.services import dead_letters
from app.services.events import store_batch
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.postgres import PostgresForTests
from tests.triggerer.world import World

KEYS = ("one", "two", None)
ASSETS = 2


class RequeueMachine(RuleBasedStateMachine):
    """One trigger with two assets and a DAG on each; messages of three identities, and people."""

    runner: ClassVar[asyncio.Runner]
    database: ClassVar[Database]
    limits: ClassVar[Settings]
    numbers: ClassVar[itertools.count[int]] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.database, Keys(Fernet.generate_key().decode()))
        self.notifier = Notifier(self.database)
        #: Events of delivered messages without identity.
        self.nameless = 0

    def server(self) -> Requeuer:
        """That of another API server, each time."""
        return Requeuer(self.database, self.notifier, self.limits)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize()
    def make(self) -> None:
        number = next(self.numbers)

        async def work() -> None:
            self.assets = [await self.world.asset(f"m{number}_{n}") for n in range(ASSETS)]
            for asset in self.assets:
                await self.world.dag(f"on_{asset}", asset)
            self.trigger = await self.world.trigger(classpath=f"machine.N{number}")
            self.watchers = [await self.world.watcher(asset, self.trigger) for asset in self.assets]
            self.job = await self.world.job()
            self.epoch = await self.world.own(self.trigger, self.job)

        self.do(work())

    def item(self, key: str | None, refusing: int) -> DeliveryItem:
        """A message that nobody (0), one asset (1) or every asset (2) refuses."""
        if refusing == 2:
            unread = Refusal(code="nan", reason="no number")
            return DeliveryItem(payload=None, key=key, source="s", refusals=(unread,))
        passing = self.watchers[refusing:]
        refusals = (Refusal(code="schema", reason="a rule", watchers=(self.watchers[0],)),) if refusing else ()
        return DeliveryItem(payload='"own"', watchers=tuple(passing), key=key, source="s", refusals=refusals)

    async def deliver(self, key: str | None, refusing: int) -> None:
        delivery = Delivery(trigger_id=self.trigger, epoch=self.epoch, items=(self.item(key, refusing),))
        (answer,) = await store_batch(self.database, self.notifier, self.job, deliveries=[delivery])
        assert answer.verdict is Verdict.STORED
        if key is None:
            self.nameless += answer.events

    async def requeue(self, letter: int) -> None:
        try:
            done = await self.server().requeue(letter, payload='"edited"')
        except RequestRefused:
            return
        assert 1 <= len(done.event_ids) <= ASSETS

    async def letters(self) -> list[int]:
        rows = await self.world.fetch("SELECT id FROM dead_letter WHERE trigger_id = $1 ORDER BY id", self.trigger)
        return [row["id"] for row in rows]

    @rule(key=st.sampled_from(KEYS), refusing=st.integers(0, 2))
    def a_message_comes(self, key: str | None, refusing: int) -> None:
        self.do(self.deliver(key, refusing))

    @rule(
        picks=st.lists(st.integers(0, 50), min_size=1, max_size=4),
        key=st.sampled_from(KEYS),
        refusing=st.integers(0, 2),
        deletes=st.booleans(),
    )
    def everything_at_once(self, picks: list[int], key: str | None, refusing: int, *, deletes: bool) -> None:
        async def work() -> None:
            letters = await self.letters()
            chosen = [letters[pick % len(letters)] for pick in picks] if letters else []
            work = [self.requeue(letter) for letter in [*chosen, *chosen]]
            if deletes and chosen:
                work.append(self.delete(chosen[0]))
            await asyncio.gather(self.deliver(key, refusing), *work)

        self.do(work())

    async def delete(self, letter: int) -> None:
        await dead_letters.delete(self.database, [letter])

    @rule(pick=st.integers(0, 50))
    def requeue_and_crash(self, pick: int) -> None:
        """Whoever asked goes away at any point: the event is there with its letter's new state, or neither is."""

        async def work() -> None:
            letters = await self.letters()
            if not letters:
                return
            letter = letters[pick % len(letters)]
            asking = asyncio.ensure_future(self.server().requeue(letter, payload='"edited"'))
            for _ in range(pick):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            if not asking.cancelled():
                asking.exception()

        self.do(work())

    @invariant()
    def each_message_makes_at_most_one_event_of_an_asset(self) -> None:
        if hasattr(self, "epoch"):
            self.do(self.look())

    async def look(self) -> None:
        rows = await self.world.fetch(
            "SELECT asset_id, key, requeued_from, count(*) AS events FROM asset_event "
            "WHERE asset_id = ANY($1::bigint[]) GROUP BY asset_id, key, requeued_from",
            self.assets,
        )
        named = [(row["asset_id"], row["key"]) for row in rows if row["key"] is not None]
        assert len(named) == len(set(named))
        assert all(row["events"] == 1 for row in rows if row["key"] is not None or row["requeued_from"] is not None)
        delivered = [row["events"] for row in rows if row["key"] is None and row["requeued_from"] is None]
        assert sum(delivered) == self.nameless
        demand = await self.world.value("SELECT count(*) FROM demand WHERE asset_id = ANY($1::bigint[])", self.assets)
        assert demand == sum(row["events"] for row in rows)
        # An event and its letter's new state are there together, or neither.
        halves = await self.world.fetch(
            """
            SELECT l.id FROM dead_letter l JOIN asset_event e ON e.requeued_from = l.id
            WHERE l.state <> 'requeued' OR NOT e.id = ANY(l.event_ids)
            UNION ALL
            SELECT l.id FROM dead_letter l, unnest(l.event_ids) AS i
            WHERE NOT EXISTS (SELECT 1 FROM asset_event e WHERE e.id = i)
            """
        )
        assert halves == []


@pytest.mark.timeout(180)
def test_any_meeting_keeps_the_promise(postgres: PostgresForTests, home: Path) -> None:
    with asyncio.Runner() as runner:
        name = runner.run(postgres.create())
        database_url = postgres.url(name)
        RequeueMachine.runner = runner
        RequeueMachine.limits = load_settings(home=home, database_url=database_url)

        async def connect() -> Database:
            return await Database.connect(database_url, pool_size=10)

        RequeueMachine.database = runner.run(connect())
        try:
            run_state_machine_as_test(
                RequeueMachine,
                settings=settings(
                    max_examples=25,
                    stateful_step_count=12,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(RequeueMachine.database.close())
            runner.run(postgres.drop(name))
