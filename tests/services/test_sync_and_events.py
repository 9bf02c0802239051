"""Files are synced while events of their watchers are stored."""

from __future__ import annotations

import asyncio

import pytest

from app.domain.deliveries import Delivery, DeliveryItem, Resolution, Verdict
from app.services import triggers
from app.services.dags import set_paused
from app.services.deliveries import store_batch
from app.services.secrets import Keys
from app.store.database import Database
from tests.declared import Declared, consumer, producer, trigger, watched

TICK = trigger('{"every": 1}')
TOCK = trigger('{"every": 2}')
KEYS = Keys("x" * 43 + "=")


class Owner:
    """A triggerer, as far as the store can tell."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._id = 0
        self._sent = 0

    async def claim(self) -> list[triggers.ClaimedTrigger]:
        if not self._id:
            row = await self._declared.rows(
                "INSERT INTO job (job_type, hostname, pid, latest_heartbeat) "
                "VALUES ('triggerer', 'h', 1, now()) RETURNING id"
            )
            self._id = row[0].id
        return await triggers.claim(self._declared.database, KEYS, owner_id=self._id, limit=100)

    async def deliver(self, *claimed: triggers.ClaimedTrigger) -> list[Resolution]:
        """One message of each trigger, to all of its watchers."""
        deliveries = []
        for each in claimed:
            self._sent += 1
            watchers = tuple(watcher.id for watcher in each.watchers)
            item = DeliveryItem(payload="1", watchers=watchers, source="s", key=str(self._sent))
            deliveries.append(Delivery(trigger_id=each.id, epoch=each.epoch, items=(item,)))
        return await store_batch(self._declared.database, self._declared.notifier, self._id, deliveries=deliveries)


@pytest.fixture
def declared(database: Database) -> Declared:
    return Declared(database)


async def test_a_removed_watcher_fences_its_owner(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK))))
    owner = Owner(declared)
    (held,) = await owner.claim()
    assert (await owner.deliver(held))[0].verdict is Verdict.STORED
    await declared.sync("a.py", consumer("a", watched("one")))
    assert (await owner.deliver(held))[0].verdict is Verdict.FENCED
    assert len(await declared.rows("SELECT * FROM asset_event")) == 1, "events outlive their trigger"


async def test_a_message_in_hand_is_not_lost_when_its_watcher_moves_to_another_asset(declared: Declared) -> None:
    await declared.sync("a.py", consumer("a", watched("one", ("w", TICK))))
    owner = Owner(declared)
    (held,) = await owner.claim()
    await declared.sync("a.py", consumer("a", watched("two", ("w", TICK))))
    assert (await owner.deliver(held))[0].verdict is Verdict.FENCED
    (again,) = await owner.claim()
    assert again.id == held.id
    assert (await owner.deliver(again))[0].events == 1


async def test_an_event_counts_for_those_who_consume_its_asset(declared: Declared) -> None:
    one = watched("one", ("w", TICK))
    await declared.sync("a.py", consumer("a", one), producer("p", one))
    await declared.sync("b.py", consumer("b", one))
    await set_paused(declared.database, declared.notifier, dag_id="b", paused=True)
    owner = Owner(declared)
    await owner.deliver(*await owner.claim())
    rows = await declared.rows("SELECT dag_id, state FROM demand ORDER BY 1")
    assert [tuple(row) for row in rows] == [("a", "pending"), ("b", "skipped")]


async def test_syncs_and_events_do_not_wait_for_each_other_for_ever(declared: Declared) -> None:
    one, two = watched("one", ("w", TICK)), watched("two", ("w", TICK), ("v", TOCK))
    files = {f"{name}.py": consumer(name, one, two) for name in "abc"}
    for file, dag in files.items():
        await declared.sync(file, dag)
    stored = 0
    over = asyncio.Event()

    async def deliver() -> None:
        nonlocal stored
        owner = Owner(declared)
        held: list[triggers.ClaimedTrigger] = []
        while not over.is_set():
            held += await owner.claim()
            answers = await owner.deliver(*held)
            stored += sum(answer.events for answer in answers)
            held = [each for each, answer in zip(held, answers, strict=True) if answer.verdict is Verdict.STORED]

    async def edit() -> None:
        for turn in range(8):
            for file, dag in files.items():
                changed = consumer(dag.dag_id, one if turn % 2 else two, two)
                await declared.sync(file, changed, code=str(turn))
                await set_paused(declared.database, declared.notifier, dag_id=dag.dag_id, paused=bool(turn % 2))
        over.set()

    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(deliver())
        group.create_task(edit())
    assert len(await declared.rows("SELECT id FROM asset_event")) == stored > 0
