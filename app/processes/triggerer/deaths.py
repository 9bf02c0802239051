"""Ends of runners: in words, and whether starting again at once is any use."""

from __future__ import annotations

import signal

from app.processes.triggerer.runner import RunnerEnd, RunnerKey

#: After so many runners in a row that lived shorter than this (in seconds), with nobody to blame, all of their triggers
#: count as failed. Before that they start again at once.
SHORT_LIFE = 5.0
FORGIVEN_DEATHS = 4
#: A SIGKILL may come from outside and meet a trigger by chance: so many are forgiven.
FORGIVEN_KILLS = 2


class ShortLives:
    """Counts the runners of a key that ended soon after their start, one after the other."""

    def __init__(self) -> None:
        self._counts: dict[RunnerKey, int] = {}

    def keeps_dying(self, key: RunnerKey, end: RunnerEnd) -> bool:
        """Count this end; whether it is one too many."""
        if end.expected or end.lasted >= SHORT_LIFE:
            self._counts.pop(key, None)
            return False
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] > FORGIVEN_DEATHS


def may_be_chance(end: RunnerEnd, *, strikes: int) -> bool:
    """Whether the trigger that executed when its runner ended, for the ``strikes``-th time, may not be to blame."""
    return not end.blamed and end.returncode == -signal.SIGKILL and strikes <= FORGIVEN_KILLS


def shown(end: RunnerEnd) -> str:
    """The end in words."""
    if end.error is not None:
        return end.error
    if end.returncode is not None and end.returncode < 0:
        return f"signal {signal.Signals(-end.returncode).name}"
    return f"exit code {end.returncode}"
