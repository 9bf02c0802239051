"""From a yield to its resolution, through runner and database: ``python -m tests.benchmarks.triggering``."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import uvloop
from cryptography.fernet import Fernet

from app.kernel.settings import load_settings
from app.processes.triggerer.triggerer import Triggerer
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.benchmarks.storing import commits
from tests.postgres import PostgresForTests, running_postgres
from tests.triggerer import scripted
from tests.triggerer.world import World

CASES = (
    ("1 trigger, single yields", 1, 1, 0.0),
    ("1 trigger, 100 a yield", 1, 100, 0.0),
    ("50 triggers, single yields", 50, 1, 0.0),
    ("50 triggers, 20 a yield", 50, 20, 0.0),
    ("10 triggers, 10/s each", 10, 1, 0.1),
)


async def run_case(postgres: PostgresForTests, *, triggers: int, size: int, pause: float, seconds: float) -> str:
    name = await postgres.create()
    home = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    settings = load_settings(home=home, database_url=postgres.url(name), pending_demand_limit=100_000_000)
    keys = Keys(Fernet.generate_key().decode())
    async with await Database.connect(postgres.url(name)) as database, Notifier.open(database) as notifier:
        world = World(database, keys)
        for _ in range(triggers):
            asset = await world.asset()
            await world.dag(f"dag_{asset}", asset)
            await world.trigger(asset, classpath=f"{scripted.MODULE}.Fast", kwargs={"size": size, "pause": pause})
        triggerer = Triggerer(database=database, notifier=notifier, settings=settings, keys=keys, deployment="bench")
        stop = asyncio.Event()
        running = asyncio.create_task(triggerer.run(stop))
        while await world.value("SELECT count(DISTINCT asset_id) FROM asset_event") < triggers:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        count = "SELECT count(*) FROM asset_event"
        before, start = await world.value(count), asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        after, took = await world.value(count), asyncio.get_running_loop().time() - start
        stop.set()
        await running
        rows = await world.fetch(
            "SELECT (b.extra->'payload'->>'took')::float8 * 1000 AS took FROM asset_event e "
            "JOIN event_body b ON b.id = e.body_id WHERE e.id % $1 = 0 ORDER BY e.id",
            size,
        )
    await postgres.drop(name)
    shutil.rmtree(home, ignore_errors=True)
    times = sorted(row["took"] for row in rows[len(rows) // 5 :] if row["took"])
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99) - 1]
    return f"{(after - before) / took:>8,.0f} events/s   yield to resolved p50 {p50:6.2f} ms  p99 {p99:6.2f} ms"


async def measure(postgres: PostgresForTests, seconds: float) -> None:
    name = await postgres.create()
    async with await Database.connect(postgres.url(name)) as database:
        sys.stdout.write(f"raw commits, one connection: {await commits(database, seconds):,.0f}/s\n")
    await postgres.drop(name)
    for label, triggers, size, pause in CASES:
        told = await run_case(postgres, triggers=triggers, size=size, pause=pause, seconds=seconds)
        sys.stdout.write(f"{label:<30} {told}\n")
        sys.stdout.flush()


def main() -> None:
    with running_postgres(fsync=True) as postgres:
        uvloop.run(measure(postgres, float(sys.argv[1]) if len(sys.argv) > 1 else 3.0))


if __name__ == "__main__":
    main()
