"""From the end of a triggerer to the next message of its watchers, stored by another one: killed, and frozen."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.fernet import Fernet

from app.processes.triggerer.rebalancing import STEADY
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.benchmarks.figures import Section, Spread
from tests.postgres import PostgresForTests
from tests.triggerer import scripted
from tests.triggerer.world import World
from tests.waiting import eventually

#: Watchers, shared by two triggerers: each reads a folder, every 10 ms.
WATCHERS = 4
_LIMIT = 120.0
#: How often is looked whether it has happened, in seconds: what the figures are exact to.
_LOOK = 0.003
_PROGRAM = """
import uvloop
from app.kernel.settings import load_settings
from app.kernel.telemetry import configure_logging
from app.processes.triggerer.service import serve
settings = load_settings()
configure_logging()
uvloop.run(serve(settings, settings.database_url.get_secret_value()))
"""
_OWNED_BY = """
SELECT t.id FROM trigger t JOIN job j ON j.id = t.owner_id
WHERE t.status = 'running' AND j.pid = $1 AND j.ended_at IS NULL ORDER BY t.id
"""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Milliseconds from the end of an owner, one of each round or watcher."""

    claimed: list[float] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)


class Pair:
    """Two triggerers on a database with watchers in it."""

    def __init__(self, dsn: str, world: World, folder: Path, *, key: str) -> None:
        self._dsn = dsn
        self._world = world
        self._folder = folder
        self._key = key
        self._assets: dict[int, int] = {}
        self._sent = 0

    async def watch(self) -> None:
        """One more watcher, with a folder of its own."""
        asset = await self._world.asset()
        await self._world.dag(f"dag_{asset}", asset)
        folder = self._folder / str(asset)
        folder.mkdir()
        classpath = f"{scripted.MODULE}.Broker"
        self._assets[await self._world.trigger(asset, classpath=classpath, kwargs={"folder": str(folder)})] = asset

    @asynccontextmanager
    async def triggerer(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """A triggerer; killed at the end if it is still there."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path.cwd()),
            "TIDEGATE_HOME": str(self._folder / "home"),
            "TIDEGATE_DATABASE_URL": self._dsn,
            "TIDEGATE_ENCRYPTION_KEY": self._key,
        }
        with (self._folder / "triggerers.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", _PROGRAM, env=environment, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def owned(self, process: asyncio.subprocess.Process) -> list[int]:
        return [int(row["id"]) for row in await self._world.fetch(_OWNED_BY, process.pid)]

    async def settled(self, *processes: asyncio.subprocess.Process) -> None:
        """Each has its share, and each watcher has stored a message in the hands of its owner."""

        async def even() -> bool:
            return all([len(await self.owned(each)) == WATCHERS // 2 for each in processes])

        await eventually(even, _LIMIT, what="the watchers are shared")
        await asyncio.gather(*(self._stored(trigger) for trigger in self._assets))

    async def end(
        self, process: asyncio.subprocess.Process, number: signal.Signals, *, heir: asyncio.subprocess.Process
    ) -> Times:
        """Send the signal, then a message to each watcher of the process, and wait until the other has stored it."""
        times, orphans = Times(), await self.owned(process)
        began = time.perf_counter()
        process.send_signal(number)

        async def claimed() -> None:
            while not set(orphans) & set(await self.owned(heir)):
                await asyncio.sleep(_LOOK)
            times.claimed.append((time.perf_counter() - began) * 1000)

        async def stored(trigger: int) -> None:
            await self._stored(trigger)
            times.stored.append((time.perf_counter() - began) * 1000)

        async with asyncio.timeout(_LIMIT):
            await asyncio.gather(claimed(), *map(stored, orphans))
        return times

    async def _stored(self, trigger: int) -> None:
        """Send the watcher a message and wait for its event."""
        self._sent += 1
        asset, key = self._assets[trigger], f"{self._sent:06}"
        (self._folder / str(asset) / f"{key}.msg").touch()
        query = "SELECT count(*) FROM asset_event WHERE asset_id = $1 AND key = $2"
        while not await self._world.value(query, asset, key):
            await asyncio.sleep(_LOOK)


async def measure(postgres: PostgresForTests, *, rounds: int, progress: Progress = lambda *_: None) -> Section:
    """So many kills, and a third as many owners that are frozen."""
    name, key = await postgres.create(), Fernet.generate_key().decode()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    killed, frozen = Times(), Times()
    try:
        async with await Database.connect(postgres.url(name)) as database, Notifier.open(database) as notifier:
            pair = Pair(postgres.url(name), World(database, Keys(key)), folder, key=key)
            for _ in range(WATCHERS):
                await pair.watch()
            notifier.poke("triggers")
            await _rounds(pair, signal.SIGKILL, killed, count=rounds, progress=progress)
            await _rounds(pair, signal.SIGSTOP, frozen, count=max(1, rounds // 3), progress=progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        await postgres.drop(name)
    return _told(killed, frozen)


async def _rounds(pair: Pair, number: signal.Signals, into: Times, *, count: int, progress: Progress) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(pair.triggerer())
        second = await stack.enter_async_context(pair.triggerer())
        for done in range(count):
            progress(f"take-over after {number.name}", done, count)
            await pair.settled(first, second)
            times = await pair.end(first, number, heir=second)
            into.claimed.extend(times.claimed)
            into.stored.extend(times.stored)
            with suppress(ProcessLookupError):
                first.kill()
            first, second = second, await stack.enter_async_context(pair.triggerer())


def _told(killed: Times, frozen: Times) -> Section:
    return Section(
        title=f"Take-over of {WATCHERS // 2} watchers by a second triggerer",
        rows=(
            Spread.of("kill -9 to first claim", killed.claimed),
            Spread.of("kill -9 to next message stored", killed.stored),
            Spread.of("SIGSTOP to first claim", frozen.claimed),
            Spread.of("SIGSTOP to next message stored", frozen.stored),
        ),
        notes=(
            "lease 6 s (3 heartbeats of 2 s); the heir runs watchers of its own, so its runner is warm",
            f"after each end another triggerer is started and given its share, {STEADY:g} s later",
        ),
    )
