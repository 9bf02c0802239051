"""Crash points as a test arms them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import uuid4

import msgspec

from app.kernel.crash_points import Action, CrashPoint, Fired, Order


class Points:
    """The orders in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(
        self, point: CrashPoint, *, passing: int = 1, victim: int | None = None, action: Action = Action.KILL
    ) -> ArmedPoint:
        """Have the process that passes ``point`` for the n-th time killed (or held)."""
        order = Order(token=uuid4().hex, action=action, passing=passing, victim=victim)
        draft = self.folder / f"{order.token}.order"
        draft.write_bytes(msgspec.json.encode(order))
        draft.rename(self.folder / point.value)
        return ArmedPoint(self.folder, point, order.token)


class ArmedPoint:
    """One order."""

    def __init__(self, folder: Path, point: CrashPoint, token: str) -> None:
        self.point = point
        self.token = token
        self._folder = folder

    def fired(self) -> Fired | None:
        """Who passed and when, once somebody has."""
        try:
            return msgspec.json.decode((self._folder / f"{self.token}.fired").read_bytes(), type=Fired)
        except FileNotFoundError:
            return None

    async def wait(self, *, within: float = 30.0) -> Fired:
        """Until it has fired."""
        until = time.monotonic() + within
        while (fired := self.fired()) is None:
            assert time.monotonic() < until, f"no process was at {self.point} within {within} s"
            await asyncio.sleep(0.002)  # what is measured from there must not wait long
        return fired

    def go_on(self) -> None:
        """Let the process that is held go on."""
        (self._folder / f"{self.token}.go").touch()

    def withdraw(self) -> bool:
        """Take the order back; False: somebody was faster."""
        try:
            (self._folder / self.point.value).unlink()
        except FileNotFoundError:
            return False
        return True
