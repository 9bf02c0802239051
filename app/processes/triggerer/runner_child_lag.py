"""How much waits at a trigger's source: asked beside the trigger, told to the parent."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TypeGuard

from watchers.triggers import LAG_DEADLINE, BaseEventTrigger, BaseTrigger

#: A lag that stays none or unknown is told again after this time, in seconds.
RETELL_SECONDS = 60.0
#: Longest pause between two questions to a source whose lag cannot be had, in seconds.
LONGEST_PAUSE = 60.0


def tells_lag(trigger: BaseTrigger) -> TypeGuard[BaseEventTrigger]:
    """Whether the author of the trigger says how much waits; others are not asked, and no task is spent on them."""
    return isinstance(trigger, BaseEventTrigger) and type(trigger).lag is not BaseEventTrigger.lag


class LagReports:
    """Asks one trigger every ``interval`` seconds and tells what it says, unless that is old news."""

    def __init__(self, trigger: BaseEventTrigger, *, interval: float, tell: Callable[[int | None], None]) -> None:
        self._trigger = trigger
        self._interval = interval
        self._tell = tell
        self._failures = 0
        self._told: int | None = None
        self._told_at = 0.0

    async def run(self) -> None:
        """Ask for ever. Sources that were started together are not asked together."""
        await asyncio.sleep(self._interval * random.uniform(0.5, 1.0))
        while True:
            lag = await self._ask()
            now = time.monotonic()
            if lag or lag != self._told or now - self._told_at >= RETELL_SECONDS:
                self._tell(lag)
                self._told, self._told_at = lag, now
            await asyncio.sleep(min(self._interval * 2 ** min(self._failures, 5), max(LONGEST_PAUSE, self._interval)))

    async def _ask(self) -> int | None:
        try:
            async with asyncio.timeout(LAG_DEADLINE):
                lag = await self._trigger.lag()
            if lag is not None and (isinstance(lag, bool) or not isinstance(lag, int) or lag < 0):
                raise TypeError(f"lag() returned {str(lag)[:100]}; it may return None or a number from 0 on")
        except Exception as error:  # noqa: BLE001 — an author's code: told, and unknown from then on
            if not self._failures:
                said = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
                self._trigger.log.warning("how much waits at the source cannot be told at present: %s", said)
            self._failures += 1
            return None
        self._failures = 0
        return None if lag is None else min(lag, 2**62)
