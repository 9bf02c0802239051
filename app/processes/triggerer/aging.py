"""Keeps the garbage collector from walking through tens of thousands of waiting triggers again and again.

A full collection takes a second with 50,000 of them, and the loop stands still meanwhile. What waits for long is set
aside (``gc.freeze``); once half of it has left, it is looked through again.
"""

from __future__ import annotations

import gc

_AT_ONCE = 500


class Aging:
    """One for a process: it is told of each trigger that comes and goes."""

    def __init__(self) -> None:
        self._new = 0
        self._aside = 0
        self._left = 0

    def came(self) -> None:
        """One more."""
        self._new += 1
        if self._new >= _AT_ONCE:
            self._aside += self._new
            self._new = 0
            gc.freeze()

    def went(self) -> None:
        """One less; which one, nobody asks."""
        self._left += 1
        if self._aside and self._left >= max(_AT_ONCE, self._aside // 2):
            gc.unfreeze()
            self._new = max(0, self._new + self._aside - self._left)
            self._aside = self._left = 0
