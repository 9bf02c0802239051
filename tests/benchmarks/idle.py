"""Many idle timers in one triggerer: memory of each, lateness of the loops beside them, time until all are re-owned.

The timers are :class:`watchers.temporal.DateTimeTrigger` a year ahead, each with a watcher on one asset, in a whole
triggerer process with its runner; a second triggerer takes over when the first is killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import psutil
from cryptography.fernet import Fernet

from app.services.secrets import Keys
from tests.benchmarks.figures import Rate, Section, Spread
from tests.benchmarks.lateness import Probe, last_count, reports
from tests.postgres import PostgresForTests
from tests.waiting import eventually
from watchers.describe import describe_trigger
from watchers.temporal import DateTimeTrigger
from watchers.triggers import BaseTrigger

#: Quiet time before memory is read and lateness counts, and how long lateness is then measured, in seconds.
SETTLE_SECONDS = 5.0
_LIMIT = 600.0

Progress = Callable[[str, int, int], None]

_INSERT = """
WITH made AS (
    INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status)
    SELECT 'asset', t.identity, t.classpath, t.kwargs, true, 'unassigned'
    FROM unnest($1::text[], $2::text[], $3::bytea[]) AS t(identity, classpath, kwargs) RETURNING id
)
INSERT INTO asset_watcher (asset_id, trigger_id, name) SELECT $4::bigint, id, 'watch' FROM made
"""
_ASSET = """
INSERT INTO asset (name, uri, group_name, extra, is_active, updated_at)
VALUES ('idle', 'x://idle', 'asset', '{}', true, now()) RETURNING id
"""
_RUNNING = """
SELECT count(*) FROM trigger t JOIN job j ON j.id = t.owner_id
WHERE t.status = 'running' AND j.pid = $1 AND j.ended_at IS NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resident bytes and processor seconds of a triggerer and of its runner."""

    parent: int
    runner: int
    parent_seconds: float
    runner_seconds: float


class Node:
    """A triggerer process and its runner."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self._folder = folder
        self._runner: psutil.Process | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def runner(self) -> psutil.Process | None:
        """The runner, once it is there."""
        if self._runner is None:
            found = [child for child in psutil.Process(self.pid).children() if _is_runner(child)]
            self._runner = found[0] if found else None
        return self._runner

    def resources(self) -> Resources:
        parent, runner = psutil.Process(self.pid), self.runner()
        assert runner is not None
        times, runner_times = parent.cpu_times(), runner.cpu_times()
        return Resources(
            parent=parent.memory_info().rss,
            runner=runner.memory_info().rss,
            parent_seconds=times.user + times.system,
            runner_seconds=runner_times.user + runner_times.system,
        )

    def is_probed(self) -> bool:
        """The runner reports its lateness."""
        runner = self.runner()
        return runner is not None and (self._folder / f"{runner.pid}.lags").exists()

    def begun(self) -> int:
        """How many timers have begun in the runner."""
        runner = self.runner()
        return 0 if runner is None else last_count(self._folder / f"{runner.pid}.lags")

    def lags(self, *, since: float, of_runner: bool) -> list[float]:
        """Milliseconds by which a task on the loop was late since a moment (Unix time)."""
        runner = self.runner()
        assert runner is not None
        pid = runner.pid if of_runner else self.pid
        return [lag for told in reports(self._folder / f"{pid}.lags") if told["at"] >= since for lag in told["lags"]]


def _is_runner(process: psutil.Process) -> bool:
    try:
        return any("runner_child" in part for part in process.cmdline())
    except psutil.Error:
        return False


class Idle:
    """A database with timers in it, and triggerers on it."""

    def __init__(self, dsn: str, folder: Path, *, capacity: int) -> None:
        self._dsn = dsn
        self._folder = folder
        self._capacity = capacity
        self._key = Fernet.generate_key().decode()
        self._keys = Keys(self._key)

    async def insert(self, triggers: list[BaseTrigger]) -> None:
        """Rows of wanted triggers, each watched by one asset, and a wake-up."""
        described = [describe_trigger(trigger) for trigger in triggers]
        connection = await asyncpg.connect(self._dsn)
        try:
            asset = await connection.fetchval("SELECT id FROM asset") or await connection.fetchval(_ASSET)
            await connection.execute(
                _INSERT,
                [hashlib.sha256(f"{each.identity}{n}".encode()).hexdigest() for n, each in enumerate(described)],
                [each.classpath for each in described],
                [self._keys.encrypt(each.kwargs_text) for each in described],
                asset,
            )
            await connection.execute("ANALYZE")
            await connection.execute("SELECT pg_notify('tidegate', 'bench:triggers')")
        finally:
            await connection.close()

    @asynccontextmanager
    async def triggerer(self) -> AsyncIterator[Node]:
        """A triggerer; killed at the end if it is still there."""
        environment = {
            **os.environ,
            "TIDEGATE_HOME": str(self._folder),
            "TIDEGATE_DATABASE_URL": self._dsn,
            "TIDEGATE_ENCRYPTION_KEY": self._key,
        }
        with (self._folder / "triggerers.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.benchmarks.idle_process", str(self._folder), str(self._capacity),
                env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield Node(process, self._folder)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def owned(self, node: Node) -> int:
        connection = await asyncpg.connect(self._dsn)
        try:
            return int(await connection.fetchval(_RUNNING, node.pid))
        finally:
            await connection.close()

    async def all_owned(self, node: Node, count: int, *, since: float) -> float:
        """Seconds from ``since`` (Unix time) until the node owns and runs so many timers."""

        async def done() -> bool:
            return node.begun() >= count and await self.owned(node) > count

        await eventually(done, _LIMIT, what=f"all {count:,} run in one triggerer")
        return time.time() - since

    async def alive(self, count: int) -> None:
        """So many triggerers have a job."""
        connection = await asyncpg.connect(self._dsn)
        try:
            await eventually(
                lambda: connection.fetchval("SELECT count(*) >= $1 FROM job WHERE ended_at IS NULL", count), 60
            )
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came out; seconds, and milliseconds of lateness."""

    before: Resources
    settled: Resources
    after: Resources
    claimed_in: float
    taken_over_in: float
    spreads: tuple[Spread, ...]


async def measure(
    postgres: PostgresForTests, *, triggers: int, seconds: float, progress: Progress = lambda *_: None
) -> Section:
    """So many timers in one triggerer, watched for ``seconds``, then taken over."""
    name = await postgres.create()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    try:
        idle = Idle(postgres.url(name), folder, capacity=triggers + 1)
        measured = await _measure(idle, folder, triggers=triggers, seconds=seconds, progress=progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        await postgres.drop(name)
    return _told(measured, triggers=triggers, seconds=seconds)


async def _measure(idle: Idle, folder: Path, *, triggers: int, seconds: float, progress: Progress) -> Measured:
    year_ahead = datetime.now(UTC) + timedelta(days=365)
    timers: list[BaseTrigger] = [DateTimeTrigger(year_ahead + timedelta(seconds=n)) for n in range(triggers)]
    async with idle.triggerer() as first:
        await idle.insert([Probe(str(folder))])
        await eventually(first.is_probed, 60)
        await asyncio.sleep(1)
        before = first.resources()
        progress("claimed", 0, triggers)
        await idle.insert(timers)
        claiming = time.time()
        claimed_in = await idle.all_owned(first, triggers, since=claiming)
        progress("idle", 0, triggers)
        await asyncio.sleep(SETTLE_SECONDS)
        settled, quiet = first.resources(), time.time()
        await asyncio.sleep(seconds)
        after = first.resources()
        spreads = [
            Spread.of("idle: runner loop", first.lags(since=quiet, of_runner=True)),
            Spread.of("idle: triggerer loop", first.lags(since=quiet, of_runner=False)),
        ]
        progress("taken over", 0, triggers)
        async with idle.triggerer() as second:
            await idle.alive(2)
            await asyncio.sleep(1)
            killed = time.time()
            first.process.kill()
            taken_over_in = await idle.all_owned(second, triggers, since=killed)
            await asyncio.sleep(1)
            spreads += [
                Spread.of("take-over: runner loop", second.lags(since=killed, of_runner=True)),
                Spread.of("take-over: triggerer loop", second.lags(since=killed, of_runner=False)),
            ]
    return Measured(
        before=before,
        settled=settled,
        after=after,
        claimed_in=claimed_in,
        taken_over_in=taken_over_in,
        spreads=tuple(spreads),
    )


def _told(measured: Measured, *, triggers: int, seconds: float) -> Section:
    before, settled, after = measured.before, measured.settled, measured.after
    parent, runner = (settled.parent - before.parent) / triggers, (settled.runner - before.runner) / triggers
    parent_share = (after.parent_seconds - settled.parent_seconds) / seconds * 100
    runner_share = (after.runner_seconds - settled.runner_seconds) / seconds * 100
    return Section(
        title=f"{triggers:,} idle timers in one triggerer",
        rows=(
            Rate(name="claimed and started, a second", per_second=triggers / measured.claimed_in),
            Rate(name="taken over, a second", per_second=triggers / measured.taken_over_in),
            *measured.spreads,
        ),
        notes=(
            f"bytes a trigger: {parent + runner:,.0f} ({parent:,.0f} in the triggerer, {runner:,.0f} in the runner)",
            f"that is growth of resident memory; {before.parent >> 20} and {before.runner >> 20} MiB were there before",
            f"all owned and running {measured.claimed_in:.1f} s after their rows were there",
            f"all owned and running {measured.taken_over_in:.1f} s after kill -9 of their owner",
            f"processor while idle: triggerer {parent_share:.0f} %, runner {runner_share:.0f} % of a core",
            "late is what a task that sleeps 10 ms on the loop sees beyond that",
        ),
    )
