"""Pauses between tries that grow and are spread out, so that many who failed together do not return together."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol


class Random(Protocol):
    """What decides the jitter: ``random.Random(seed)`` in tests."""

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        ...


_SYSTEM = random.Random()
# Beyond this exponent every pause is at its longest; a float would overflow long after.
_LARGEST_EXPONENT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pause n is ``first * factor**(n-1)`` seconds spread upwards by ``jitter``, within ``first`` and ``longest``."""

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"not a growing pause: {self}")

    def delay(self, attempt: int, *, source: Random = _SYSTEM) -> float:
        """Seconds to wait after failure number ``attempt`` (from 1)."""
        if attempt < 1:
            raise ValueError("attempts count from 1")
        base = min(self.longest, self.first * self.factor ** min(attempt - 1, _LARGEST_EXPONENT))
        low = max(self.first, min(base, self.longest * (1 - self.jitter)))
        high = min(self.longest, base * (1 + self.jitter))
        return low + (max(high, low) - low) * source.random()
