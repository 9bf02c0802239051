"""The database goes and comes back while messages arrive."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.store.database import Database
from app.store.wakeups import Notifier
from tests.services.proxy import Mode, Proxy
from tests.triggerer.stage import Stage, runner_pids
from tests.triggerer.world import World
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    ("mode", "lease_heartbeats", "seconds"),
    [(Mode.RESET, 60, 2.0), (Mode.RESET, 4, 4.0), (Mode.MUTE, 4, 5.0), (Mode.MUTE, 4, 8.0)],
    ids=["away within the lease", "away beyond the lease", "mute beyond the lease", "mute beyond every limit"],
)
async def test_nothing_is_acknowledged_while_the_database_is_away(
    stage: Stage,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    lease_heartbeats: int,
    seconds: float,
) -> None:
    if seconds == 8.0:
        # The time that a cancelled statement is given to end: over long before the server speaks again.
        monkeypatch.setattr("app.store.database.CONNECT_TIMEOUT", 1.0)
    folder = tmp_path / "queue"
    folder.mkdir()
    parts = urlsplit(stage.settings.database_url.get_secret_value() if stage.settings.database_url else "")
    assert parts.hostname is not None
    assert parts.port is not None
    async with Proxy((parts.hostname, parts.port)) as proxy:
        dsn = parts._replace(netloc=parts.netloc.replace(str(parts.port), str(proxy.port))).geturl()
        async with await Database.connect(dsn, pool_size=4) as database, Notifier.open(database) as notifier:
            stage.database, stage.notifier = database, notifier
            async with stage.running(heartbeat_interval=0.3, lease_heartbeats=lease_heartbeats):
                trigger, asset = await stage.watch("Broker", folder=str(folder))
                (folder / "before.msg").touch()
                await stage.events(asset, 1)
                await eventually(lambda: not list(folder.glob("*.msg")))
                pids = runner_pids()

                await proxy.set_mode(mode)
                for _ in range(5 if mode is Mode.RESET else 0):
                    # One may have been on its way while the others were being ended.
                    await proxy.drop_connections()
                    await asyncio.sleep(0.1)
                for number in range(10):
                    (folder / f"{number}.msg").touch()
                await asyncio.sleep(seconds)  # The length of the outage is what is tested.
                assert len(list(folder.glob("*.msg"))) == 10
                assert await world.value("SELECT count(*) FROM asset_event") == 1
                await proxy.set_mode(Mode.PASS)

                payloads = await stage.events(asset, 11)
                await eventually(lambda: not list(folder.glob("*.msg")), 60)
                assert sorted(payloads) == sorted(["before", *map(str, range(10))])
                if lease_heartbeats == 60:
                    assert runner_pids() == pids
                    assert (await stage.row(trigger))["epoch"] == 1
            stage.database = world.database
    assert await world.value("SELECT count(*) FROM demand") == 11
