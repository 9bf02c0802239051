"""One outage of a source, however many requests notice it."""

from __future__ import annotations

import asyncio
import random

from watchers.errors import SourceError
from watchers.triggers import SourceStatus

#: Pauses between attempts: first and longest, in seconds.
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 2.0


class Outages:
    """Joins what several activities of one trigger say: the source has recovered when none of them fails."""

    def __init__(self, status: SourceStatus) -> None:
        self._status = status
        self._failing: set[Outage] = set()

    def failed(self, outage: Outage, error: SourceError) -> None:
        """One more failure of an activity."""
        self._failing.add(outage)
        self._status.failed(error)

    def ended(self, outage: Outage) -> None:
        """An activity works again."""
        self._failing.discard(outage)
        if not self._failing:
            self._status.recovered()


class Outage:
    """The failures of one activity (receiving, deleting) that several tasks pursue.

    ``turn`` is held by the one task that tries again while the outage lasts; the others wait for it. ``attempt``
    numbers the attempts: failures of requests that began before the last failure was noted are the same failure.
    """

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self.turn = asyncio.Lock()
        self.attempt = 0
        self.failures = 0

    @property
    def is_on(self) -> bool:
        """Whether the last attempt failed."""
        return self.failures > 0

    def failed(self, error: SourceError, *, attempt: int) -> None:
        """The request that began at ``attempt`` failed."""
        if attempt != self.attempt:
            return
        self.attempt += 1
        self.failures += 1
        self._outages.failed(self, error)

    def answered(self) -> None:
        """A request succeeded."""
        if self.failures:
            self.failures = 0
            self._outages.ended(self)

    def pause(self) -> float:
        """Seconds to the next attempt: more after each failure, up to a limit, never quite the same."""
        pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(max(self.failures - 1, 0), 10))
        return pause * random.uniform(0.8, 1.0)
