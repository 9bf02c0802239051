"""Triggers that say how much waits at their source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from tests.triggerer.scripted import _Plain
from watchers.triggers import TriggerEvent, Yielded

MODULE = __name__


class _Lagging(_Plain):
    async def lag(self) -> int | None:
        lag = self.kwargs["lag"]
        if lag == "raises":
            raise ConnectionError(f"no count with {self.kwargs['secret']}")
        if lag == "hangs":
            await asyncio.sleep(3600)
        return lag if not isinstance(lag, str) else -1


class LiesStill(_Lagging):
    """Messages wait and it yields none, until it is started while ``path`` exists."""

    async def run(self) -> AsyncIterator[Yielded]:
        if Path(self.kwargs["path"]).exists():
            yield TriggerEvent("moved")
        await asyncio.sleep(3600)


class Moves(_Lagging):
    """Messages wait, and one comes now and then."""

    async def run(self) -> AsyncIterator[Yielded]:
        number = 0
        while True:
            number += 1
            yield TriggerEvent(number)
            await asyncio.sleep(0.2)


class ClosesNever(_Lagging):
    """Lies still and takes no hint, unless it runs alone with ``path`` there."""

    async def run(self) -> AsyncIterator[Yielded]:
        if Path(self.kwargs["path"]).exists():
            yield TriggerEvent("moved")
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
