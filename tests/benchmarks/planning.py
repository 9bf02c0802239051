"""Own time of each step from a stored event to a running task, and runs planned per second.

``python -m tests.benchmarks.planning``; the server runs without fsync, the smallest transaction is printed beside.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable
from typing import TypeVar

import uvloop

from app.domain.orders import AttemptOrder, Succeeded
from app.services import demand, tasks
from app.services.tasks import AttemptReport, StartedAttempt
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.factories import make_dag, make_job, on_assets, store_events
from tests.postgres import PostgresForTests, running_postgres

Result = TypeVar("Result")
SINGLE = 200
MANY = 5_000


class Bench:
    """A scheduler and an executor driven step by step."""

    def __init__(self, database: Database, notifier: Notifier, owner_id: int) -> None:
        self.database, self.notifier, self.owner_id = database, notifier, owner_id
        self.times: dict[str, list[float]] = {}

    async def timed(self, name: str, work: Awaitable[Result]) -> Result:
        begin = time.perf_counter()
        result = await work
        self.times.setdefault(name, []).append((time.perf_counter() - begin) * 1000)
        return result

    async def attempt(self, limit: int) -> int:
        orders = await self.timed("claim", tasks.claim(self.database, owner_id=self.owner_id, limit=limit))
        attempts = [StartedAttempt(task_instance_id=one.task_instance_id, epoch=one.epoch) for one in orders]
        await self.timed("start", tasks.mark_running(self.database, owner_id=self.owner_id, attempts=attempts))
        await self.timed("end", self.finish(orders))
        return len(orders)

    async def finish(self, orders: list[AttemptOrder]) -> None:
        reports = [AttemptReport.of(order, Succeeded(xcoms={"return_value": "1"})) for order in orders]
        await tasks.finish(self.database, self.notifier, owner_id=self.owner_id, reports=reports)

    async def nothing(self) -> None:
        async with self.database.hot() as hot:
            await hot.fetchval("SELECT 1")

    async def single(self) -> None:
        for _ in range(SINGLE):
            await store_events(self.database, "a")
            await self.timed("plan", demand.plan(self.database, self.notifier))
            await self.attempt(10)
            await self.timed("smallest transaction", self.nothing())
        for name, values in self.times.items():
            ordered = sorted(values)
            print(f"{name}: p50 {statistics.median(ordered):.2f} ms, p95 {ordered[int(len(ordered) * 0.95)]:.2f} ms")

    async def many(self) -> None:
        for _ in range(MANY // 500):
            await store_events(self.database, *["a"] * 500)
        begin, runs, more = time.perf_counter(), 0, True
        while more:
            outcome = await demand.plan(self.database, self.notifier)
            runs, more = runs + outcome.runs, bool(outcome.more)
        print(f"{runs} runs planned, {runs / (time.perf_counter() - begin):.0f} a second")
        begin, attempts = time.perf_counter(), 0
        while done := await self.attempt(100):
            attempts += done
        print(f"{attempts} attempts from claim to end, {attempts / (time.perf_counter() - begin):.0f} a second")


async def main(postgres: PostgresForTests) -> None:
    name = await postgres.create()
    async with await Database.connect(postgres.url(name)) as database, Notifier.open(database) as notifier:
        async with database.hot() as hot:
            owner_id = await make_job(hot)
            await make_dag(hot, "d", schedule=on_assets("a"), max_active_runs=10_000, max_active_tasks=10_000)
        bench = Bench(database, notifier, owner_id)
        await bench.single()
        await bench.many()
    await postgres.drop(name)


if __name__ == "__main__":
    with running_postgres() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(server))
