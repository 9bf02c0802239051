"""Events stored per second by the storing service alone, without runner and triggerer around it."""

from __future__ import annotations

import asyncio
import time

from cryptography.fernet import Fernet

from app.services.events import Delivery, DeliveryItem, EventPoster, store_batch
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.benchmarks.figures import Rate, Section, Spread
from tests.postgres import PostgresForTests
from tests.triggerer.world import World

PAYLOAD = '{"order": 1234567, "customer": "somebody", "lines": [1, 2, 3], "note": "an ordinary message of a queue"}'
#: Triggers with something to store in the same transaction, and events of each.
CASES = ((1, 1), (1, 10), (1, 100), (1, 500), (50, 1), (50, 10))
WARM_UP = 0.3


class _Storing:
    """A trigger a source, an asset each, one consumer DAG each."""

    def __init__(self, database: Database, notifier: Notifier, world: World) -> None:
        self._database, self._notifier, self._world = database, notifier, world
        self._count = 0
        self._owned: list[tuple[int, int, int]] = []

    async def prepare(self, triggers: int) -> None:
        self._job = await self._world.job()
        self._owned = []
        for _ in range(triggers):
            asset = await self._world.asset()
            await self._world.dag(f"dag_{asset}", asset)
            trigger = await self._world.trigger()
            watcher = await self._world.watcher(asset, trigger)
            self._owned.append((trigger, await self._world.own(trigger, self._job), watcher))

    def _deliveries(self, size: int) -> list[Delivery]:
        return [
            Delivery(trigger_id=trigger, epoch=epoch, items=tuple(self._item(watcher) for _ in range(size)))
            for trigger, epoch, watcher in self._owned
        ]

    def _item(self, watcher: int) -> DeliveryItem:
        self._count += 1
        return DeliveryItem(
            payload=PAYLOAD, watchers=(watcher,), key=f"orders/0/{self._count}", source="kafka:x/orders"
        )

    async def run(self, size: int, seconds: float) -> tuple[float, list[float]]:
        times: list[float] = []
        start = time.perf_counter()
        stored = 0
        while time.perf_counter() - start < seconds:
            deliveries = self._deliveries(size)
            began = time.perf_counter()
            await store_batch(self._database, self._notifier, self._job, deliveries=deliveries)
            times.append((time.perf_counter() - began) * 1000)
            stored += size * len(deliveries)
        return stored / (time.perf_counter() - start), times


async def measure(postgres: PostgresForTests, *, seconds: float) -> Section:
    """Each case for so many seconds, in one database."""
    name = await postgres.create()
    keys = Keys(Fernet.generate_key().decode())
    rows: list[Rate] = []
    async with await Database.connect(postgres.url(name)) as database, Notifier.open(database) as notifier:
        world = World(database, keys)
        for triggers, size in CASES:
            storing = _Storing(database, notifier, world)
            await storing.prepare(triggers)
            await storing.run(size, WARM_UP)
            rate, times = await storing.run(size, seconds)
            label = f"{triggers} trigger{'s' if triggers > 1 else ''}, {size} event{'s' if size > 1 else ''} of each"
            rows.append(Rate(name=label, per_second=rate, spread=Spread.of("transaction", times)))
        rows.append(await _posting(database, notifier, world=world, seconds=seconds))
    await postgres.drop(name)
    return Section(
        title="Events stored by the service alone",
        rows=tuple(rows),
        notes=("times are those of one transaction; one row is one number of events in it",),
    )


async def _posting(database: Database, notifier: Notifier, *, world: World, seconds: float) -> Rate:
    """Events of 25 callers, in shared transactions."""
    asset = await world.asset()
    await world.dag("posted", asset)
    times: list[float] = []
    async with EventPoster.open(database, notifier) as poster:
        start = time.perf_counter()

        async def caller(number: int) -> None:
            while (began := time.perf_counter()) - start < seconds:
                key = f"{number}/{len(times)}"
                await poster.post(asset_id=asset, extra={"n": number}, idempotency_key=key)
                times.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(caller(number) for number in range(25)))
        took = time.perf_counter() - start
    return Rate(name="25 callers posting", per_second=len(times) / took, spread=Spread.of("post", times))
