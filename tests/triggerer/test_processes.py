"""Triggerers as processes of their own: ended, killed, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from cryptography.fernet import Fernet

from app.services.secrets import Keys
from tests.triggerer.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
import asyncio
from app.kernel.settings import load_settings
from app.processes.triggerer.service import serve
settings = load_settings()
asyncio.run(serve(settings, settings.database_url.get_secret_value()))
"""


@asynccontextmanager
async def triggerer(stage: Stage, key: str, **extra: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A triggerer process; killed at the end if it is still there."""
    assert stage.settings.database_url is not None
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path.cwd()),
        "TIDEGATE_HOME": str(stage.home),
        "TIDEGATE_DATABASE_URL": stage.settings.database_url.get_secret_value(),
        "TIDEGATE_ENCRYPTION_KEY": key,
        "TIDEGATE_HEARTBEAT_INTERVAL": "0.5",
        "TIDEGATE_LEASE_HEARTBEATS": "6",
        **extra,
    }
    log = (stage.home / "triggerer.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", PROGRAM, env=environment, stdout=log, stderr=log
    )
    try:
        yield process
    finally:
        log.close()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
        await process.wait()


def children(pid: int) -> list[psutil.Process]:
    return list(psutil.Process(pid).children())


@pytest.fixture
def key(stage: Stage) -> str:
    """The key of the stage, in a form that a process can be told."""
    text = Fernet.generate_key().decode()
    stage.world.keys = stage.keys = Keys(text)
    return text


async def owner(stage: Stage, trigger: int) -> int | None:
    found = (await stage.row(trigger))["owner_id"]
    return None if found is None else int(found)


async def test_a_clean_end_stores_releases_and_leaves_nobody(stage: Stage, key: str, tmp_path: Path) -> None:
    trigger, asset = await stage.watch("Broker", folder=str(tmp_path))
    (tmp_path / "1.msg").touch()
    async with triggerer(stage, key) as process:
        await stage.events(asset, 1)
        runners = children(process.pid)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    row = await stage.row(trigger)
    assert (row["status"], row["owner_id"]) == ("unassigned", None)
    assert (tmp_path / "cleaned").read_text() == "x"
    assert not list(tmp_path.glob("*.msg"))
    assert not [runner for runner in runners if runner.is_running()]
    assert await stage.world.value("SELECT count(*) FROM job WHERE ended_at IS NULL") == 0


async def test_a_killed_triggerer_is_followed_at_once_and_nothing_is_lost(
    stage: Stage, key: str, tmp_path: Path
) -> None:
    trigger, asset = await stage.watch("Broker", folder=str(tmp_path))
    total = 0
    async with triggerer(stage, key) as first:
        await eventually(lambda: owner(stage, trigger), 60)
        async with triggerer(stage, key) as second:
            await eventually(lambda: stage.world.value("SELECT count(*) >= 2 FROM job WHERE ended_at IS NULL"), 60)
            for _ in range(30):
                (tmp_path / f"{total:03}.msg").touch()
                total += 1
            await stage.events(asset, 5)
            (runner,) = children(first.pid)
            first.kill()
            for _ in range(10):
                (tmp_path / f"{total:03}.msg").touch()
                total += 1
            await stage.events(asset, total)
            await eventually(lambda: not runner.is_running() or runner.status() == psutil.STATUS_ZOMBIE)
            await eventually(lambda: not list(tmp_path.glob("*.msg")))
            assert second.returncode is None
    assert await stage.world.payloads(asset) == [f"{number:03}" for number in range(total)]
    assert await stage.world.value("SELECT count(*) FROM demand") == total


async def test_a_stopped_owner_is_replaced_and_stores_nothing_when_it_wakes(
    stage: Stage, key: str, tmp_path: Path
) -> None:
    trigger, asset = await stage.watch("Broker", folder=str(tmp_path))
    (tmp_path / "1.msg").touch()
    async with triggerer(stage, key) as first:
        await stage.events(asset, 1)
        first_owner = await owner(stage, trigger)
        (runner,) = children(first.pid)
        first.send_signal(signal.SIGSTOP)
        # The runner is told of no renewed lease and closes its generators by itself.
        await eventually((tmp_path / "cleaned").exists, 60)
        async with triggerer(stage, key):
            (tmp_path / "2.msg").touch()
            assert await stage.events(asset, 2) == ["1", "2"]
            assert await owner(stage, trigger) != first_owner
            epoch = (await stage.row(trigger))["epoch"]
            first.send_signal(signal.SIGCONT)

            async def came_back() -> bool:
                return bool(await stage.world.value("SELECT count(*) = 3 FROM job WHERE job_type = 'triggerer'"))

            assert await eventually(came_back, 60)
            (tmp_path / "3.msg").touch()
            assert await stage.events(asset, 3) == ["1", "2", "3"]
            assert (await stage.row(trigger))["epoch"] == epoch
        assert not runner.is_running() or runner.status() == psutil.STATUS_ZOMBIE


async def test_two_triggerers_share_many(stage: Stage, key: str) -> None:
    async with triggerer(stage, key), triggerer(stage, key):
        await eventually(lambda: stage.world.value("SELECT count(*) = 2 FROM job WHERE ended_at IS NULL"), 60)
        for _ in range(20):
            await stage.watch("Ticker", pause=3600)

        async def all_owned() -> bool:
            return bool(await stage.world.value("SELECT count(*) = 20 FROM trigger WHERE status = 'running'"))

        assert await eventually(all_owned, 60)
        assert await stage.world.value("SELECT max(epoch) FROM trigger") == 1
