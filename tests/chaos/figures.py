"""Figures of a run of the suite, printed as a table at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ROWS: list[tuple[str, str, str]] = []


def record(test: str, what: str, figure: str) -> None:
    """Add a row; it is printed now (`-s` shows it) and again at the end."""
    _ROWS.append((test, what, figure))
    print(f"{test}: {what}: {figure}")


def aimed(value: float, aim: float) -> str:
    """Seconds beside what they should be at most. A busy machine misses aims; a test fails for its own bounds only."""
    return f"{value:.2f} s (aim ≤ {aim:g} s{'' if value <= aim else ': MISSED'})"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def spread(values: Sequence[float], **aims: float) -> str:
    """Seconds, as a person reads them; ``aims`` by the name of the share."""
    if not values:
        return "none"
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {name: percentile(values, share) for name, share in shares.items()}
    told = [aimed(found[name], aims[name]) if name in aims else f"{found[name]:.2f} s" for name in shares]
    return f"n={len(values)} " + " ".join(f"{name} {each}" for name, each in zip(shares, told, strict=True))


def table() -> list[str]:
    """The rows as lines."""
    if not _ROWS:
        return []
    widths = [max(len(row[column]) for row in _ROWS) for column in range(3)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in _ROWS]
