"""Events stored per second from triggers, through runner, triggerer and database, with the time of a yield."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet

from app.kernel.settings import load_settings
from app.processes.triggerer.triggerer import Triggerer
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.benchmarks.figures import Rate, Section, Spread
from tests.postgres import PostgresForTests
from tests.triggerer import scripted
from tests.triggerer.world import World
from tests.waiting import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """So many triggers, each yielding ``size`` events at once and pausing for ``pause`` seconds after it."""

    name: str
    triggers: int
    size: int
    pause: float = 0.0


CASES = (
    Case(name="1 trigger, 1 event a yield", triggers=1, size=1),
    Case(name="1 trigger, 100 events a yield", triggers=1, size=100),
    Case(name="50 triggers, 1 event a yield", triggers=50, size=1),
    Case(name="50 triggers, 20 events a yield", triggers=50, size=20),
    Case(name="10 triggers, 1 event a yield, 10 yields/s each", triggers=10, size=1, pause=0.1),
)
_COUNT = "SELECT count(*) FROM asset_event"
_TIMES = """
    SELECT (b.extra->'payload'->>'took')::float8 * 1000 AS took FROM asset_event e
    JOIN event_body b ON b.id = e.body_id WHERE e.id % $1 = 0 ORDER BY e.id
"""


async def measure_case(postgres: PostgresForTests, case: Case, *, seconds: float) -> Rate:
    """Run the triggers of a case for so many seconds."""
    name = await postgres.create()
    home = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    settings = load_settings(home=home, database_url=postgres.url(name), pending_demand_limit=100_000_000)
    keys = Keys(Fernet.generate_key().decode())
    async with await Database.connect(postgres.url(name)) as database, Notifier.open(database) as notifier:
        world = World(database, keys)
        for _ in range(case.triggers):
            asset = await world.asset()
            await world.dag(f"dag_{asset}", asset)
            await world.trigger(
                asset, classpath=f"{scripted.MODULE}.Fast", kwargs={"size": case.size, "pause": case.pause}
            )
        triggerer = Triggerer(database=database, notifier=notifier, settings=settings, keys=keys, deployment="bench")
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(triggerer.run(stop))
            await eventually(lambda: _all_yield(world, case.triggers), what="each trigger has yielded")
            await asyncio.sleep(0.5)
            before, start = await world.value(_COUNT), asyncio.get_running_loop().time()
            await asyncio.sleep(seconds)
            after, took = await world.value(_COUNT), asyncio.get_running_loop().time() - start
            stop.set()
        rows = await world.fetch(_TIMES, case.size)
    await postgres.drop(name)
    shutil.rmtree(home, ignore_errors=True)
    # The first fifth was the start.
    times = [row["took"] for row in rows[len(rows) // 5 :] if row["took"]]
    return Rate(name=case.name, per_second=(after - before) / took, spread=Spread.of("yield", times))


async def _all_yield(world: World, triggers: int) -> bool:
    return bool(await world.value("SELECT count(DISTINCT asset_id) FROM asset_event") >= triggers)


async def measure(postgres: PostgresForTests, *, seconds: float) -> Section:
    """Every case, each in a database of its own."""
    rows = [await measure_case(postgres, case, seconds=seconds) for case in CASES]
    return Section(
        title="Events stored from triggers",
        rows=tuple(rows),
        notes=("times are those of one yield, from the generator to the commit and back",),
    )
