"""A triggerer on a stage: real runners, scripted triggers, a real database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil

from app.kernel.settings import Settings, load_settings
from app.processes.triggerer.triggerer import Triggerer
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.triggerer import scripted
from tests.triggerer.world import World
from tests.waiting import eventually


class Stage:
    """A world whose triggers are those of :mod:`tests.triggerer.scripted`, and a triggerer that runs them."""

    def __init__(self, world: World, notifier: Notifier, settings: Settings, keys: Keys, database: Database) -> None:
        self.world = world
        self.notifier = notifier
        self.settings = settings
        self.keys = keys
        self.database = database
        self.home = settings.home

    async def watch(self, kind: str, *, when: str | None = None, **kwargs: Any) -> tuple[int, int]:
        """A trigger with an asset and a consumer of its own; ``(trigger, asset)``."""
        asset = await self.world.asset()
        await self.world.dag(f"dag_{asset}", asset)
        classpath = kind if "." in kind else f"{scripted.MODULE}.{kind}"
        trigger = await self.world.trigger(asset, classpath=classpath, kwargs=kwargs, when=when)
        self.notifier.poke("triggers")
        return trigger, asset

    @asynccontextmanager
    async def running(self, *, of: dict[str, Any] | None = None, **changes: Any) -> AsyncIterator[Triggerer]:
        """A triggerer while the block runs; ``of`` are its capacity, queues and team."""
        settings = load_settings(
            home=self.home,
            database_url=self.settings.database_url,
            **{"heartbeat_interval": 0.5, "lease_heartbeats": 40, **changes},
        )
        triggerer = Triggerer(
            database=self.database,
            notifier=self.notifier,
            settings=settings,
            keys=self.keys,
            deployment="stage",
            **(of or {}),
        )
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(triggerer.run(stop))
            try:
                yield triggerer
            finally:
                stop.set()
            await task

    async def row(self, trigger: int) -> Any:
        return (await self.world.fetch("SELECT * FROM trigger WHERE id = $1", trigger))[0]

    async def error(self, trigger: int) -> str:
        """The trigger's error once it has one."""
        return str(
            await eventually(lambda: self.world.value("SELECT last_error FROM trigger WHERE id = $1", trigger), 60)
        )

    async def status(self, trigger: int) -> str:
        return str((await self.row(trigger))["status"])

    def log(self, trigger: int) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.home / "logs" / "triggers" / f"{trigger}.log").read_text()
        return ""

    async def events(self, asset: int, count: int) -> list[Any]:
        """The payloads of the asset once there are ``count``."""

        async def enough() -> list[Any] | None:
            found = await self.world.payloads(asset)
            return found if len(found) >= count else None

        found = await eventually(enough, 60)
        assert found is not None
        return list(found)


def runner_pids() -> set[int]:
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any("runner_child" in part for part in child.cmdline()):
                found.add(child.pid)
    return found
