"""A trigger that yields faster than it may waits here, at its yield; what it did not fetch stays in the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.processes.triggerer.limits import Allowance

#: A trigger that did not have to wait for this time counts as waiting no more, in seconds.
QUIET_SECONDS = 5.0


class Pace:
    """Lets events pass at a rate. ``tell`` hears the reason of waiting when it begins, and None when it is over."""

    def __init__(self, allowance: Allowance, *, tell: Callable[[str | None], None]) -> None:
        self._allowance = allowance
        self._tell = tell
        self._quiet: asyncio.TimerHandle | None = None

    async def wait(self, events: int) -> None:
        """Wait until so many events may pass."""
        loop = asyncio.get_running_loop()
        if (delay := self._allowance.wait(loop.time())) > 0:
            if self._quiet is None:
                self._tell(f"it yields more than {self._allowance.rate:g} events a second")
            else:
                self._quiet.cancel()
            self._quiet = loop.call_later(delay + QUIET_SECONDS, self._over)
            await asyncio.sleep(delay)
        self._allowance.spend(events, loop.time())

    def _over(self) -> None:
        self._quiet = None
        self._tell(None)

    def close(self) -> None:
        """Nothing more is told."""
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
