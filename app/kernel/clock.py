"""Time, injected. Nothing else in the product asks the machine what time it is."""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What code that depends on time is given."""

    def now(self) -> datetime:
        """The wall clock: an aware moment in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; zero or less only lets others run."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0))


class ManualClock:
    """A clock for tests that moves only when told to; sleepers due by then wake in order."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("a clock needs an aware moment")
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._count, future))
        await future

    @property
    def sleeping(self) -> int:
        """How many wait; a test lets code reach its sleep before it moves the clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, waking each sleeper at its own moment and letting it run."""
        target = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            self._elapsed, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            for _ in range(5):
                await asyncio.sleep(0)
        self._elapsed = target


def utc_now() -> datetime:
    """The present as an aware moment in UTC, for the few places without a clock at hand (log lines, file names)."""
    return datetime.now(UTC)
