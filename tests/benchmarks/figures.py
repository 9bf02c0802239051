"""What benchmarks measure, as values: exact percentiles of samples, and rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles of ``count`` samples, in milliseconds. Each is a sample that was really measured."""

    name: str
    count: int
    p50: float
    p95: float
    p99: float
    largest: float

    @classmethod
    def of(cls, name: str, samples: Sequence[float]) -> Spread:
        """The percentiles of samples in milliseconds."""
        ordered = sorted(samples)
        return cls(
            name=name,
            count=len(ordered),
            p50=percentile(ordered, 50),
            p95=percentile(ordered, 95),
            p99=percentile(ordered, 99),
            largest=ordered[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of something a second; ``spread`` is what one operation took, where that was measured."""

    name: str
    per_second: float
    spread: Spread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The results of one benchmark. ``notes`` say what a reader must know about them."""

    title: str
    rows: tuple[Spread | Rate, ...]
    notes: tuple[str, ...] = ()


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest sample that at least ``percent`` of all samples do not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("no samples")
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
