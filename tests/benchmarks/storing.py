"""Events stored per second, beside the raw commit rate of the same server: ``python -m tests.benchmarks.storing``."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import uvloop
from cryptography.fernet import Fernet

from app.services.events import Delivery, DeliveryItem, EventPoster, store_batch
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.postgres import PostgresForTests, running_postgres
from tests.triggerer.world import World

PAYLOAD = '{"order": 1234567, "customer": "somebody", "lines": [1, 2, 3], "note": "an ordinary message of a queue"}'


async def commits(database: Database, seconds: float) -> float:
    """Smallest possible transactions that write, one after the other."""
    async with database.hot() as hot:
        await hot.execute("CREATE TABLE raw_commits (n bigint)")
    done, until = 0, time.perf_counter() + seconds
    start = time.perf_counter()
    while time.perf_counter() < until:
        async with database.hot() as hot:
            await hot.execute("INSERT INTO raw_commits VALUES ($1)", done)
        done += 1
    return done / (time.perf_counter() - start)


class Bench:
    """A trigger a source, an asset each, one consumer DAG each."""

    def __init__(self, database: Database, notifier: Notifier, world: World) -> None:
        self.database, self.notifier, self.world = database, notifier, world
        self.count = 0

    async def prepare(self, triggers: int) -> None:
        self.job = await self.world.job()
        self.owned = []
        for _ in range(triggers):
            asset = await self.world.asset()
            await self.world.dag(f"dag_{asset}", asset)
            trigger = await self.world.trigger()
            watcher = await self.world.watcher(asset, trigger)
            self.owned.append((trigger, await self.world.own(trigger, self.job), watcher))

    def deliveries(self, size: int) -> list[Delivery]:
        made = []
        for trigger, epoch, watcher in self.owned:
            items = []
            for _ in range(size):
                self.count += 1
                items.append(
                    DeliveryItem(
                        payload=PAYLOAD, watchers=(watcher,), key=f"orders/0/{self.count}", source="kafka:x/orders"
                    )
                )
            made.append(Delivery(trigger_id=trigger, epoch=epoch, items=tuple(items)))
        return made

    async def run(self, size: int, seconds: float) -> tuple[float, list[float]]:
        times: list[float] = []
        start = time.perf_counter()
        stored = 0
        while time.perf_counter() - start < seconds:
            deliveries = self.deliveries(size)
            began = time.perf_counter()
            await store_batch(self.database, self.notifier, self.job, deliveries=deliveries)
            times.append((time.perf_counter() - began) * 1000)
            stored += size * len(deliveries)
        return stored / (time.perf_counter() - start), times


def line(name: str, rate: float, times: list[float]) -> None:
    ordered = sorted(times)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99) - 1]
    sys.stdout.write(f"{name:<44} {rate:>9,.0f}/s   transaction p50 {p50:6.2f} ms  p99 {p99:6.2f} ms\n")


async def measure(postgres: PostgresForTests, seconds: float) -> None:
    name = await postgres.create()
    keys = Keys(Fernet.generate_key().decode())
    async with await Database.connect(postgres.url(name)) as database, Notifier.open(database) as notifier:
        world = World(database, keys)
        sys.stdout.write(f"{'raw commits, one connection':<44} {await commits(database, seconds):>9,.0f}/s\n")
        for triggers, size in ((1, 1), (1, 10), (1, 100), (1, 500), (50, 1), (50, 10)):
            bench = Bench(database, notifier, world)
            await bench.prepare(triggers)
            await bench.run(size, 0.3)
            line(f"{triggers} trigger(s), {size} event(s) a yield", *await bench.run(size, seconds))
        asset = await world.asset()
        await world.dag("posted", asset)
        async with EventPoster.open(database, notifier) as poster:
            start, done = time.perf_counter(), 0

            async def client() -> None:
                nonlocal done
                while time.perf_counter() - start < seconds:
                    await poster.post(asset_id=asset, extra={"n": done}, idempotency_key=f"k{done}")
                    done += 1

            await asyncio.gather(*(client() for _ in range(25)))
            sys.stdout.write(f"{'25 callers posting':<44} {done / (time.perf_counter() - start):>9,.0f}/s\n")
    await postgres.drop(name)


def main() -> None:
    with running_postgres(fsync=True) as postgres:
        uvloop.run(measure(postgres, float(sys.argv[1]) if len(sys.argv) > 1 else 2.0))


if __name__ == "__main__":
    main()
