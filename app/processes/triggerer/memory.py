"""What the runners of a triggerer take, and for which triggers: told with its heartbeats.

Memory inside one process has no owner that could be asked for it. What can be told without slowing anybody down: the
resident memory of each runner, what it had before its first trigger, and how many triggers of each class it runs.
Custom code has a runner for each bundle and what blocked before runs alone, so that this is close to a figure a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from app.processes.triggerer.held import Held
from app.processes.triggerer.resident import resident_bytes
from app.processes.triggerer.runner import RunnerProcess

#: Classes told of a runner; those with the most triggers.
_CLASSES = 20


def told(runners: Iterable[RunnerProcess], held: Iterable[Held]) -> dict[str, Any]:
    """The ``details`` of the triggerer's row: ``{"runners": [{"key", "pid", "rss_bytes", "base_bytes", "triggers"}]}``.

    ``base_bytes`` is what the runner had when it was ready; ``triggers`` counts by class.
    """
    counts: dict[RunnerProcess, Counter[str]] = {}
    for each in held:
        if each.runner is not None:
            counts.setdefault(each.runner, Counter())[each.claimed.classpath] += 1
    return {
        "runners": [
            {
                "key": str(runner.key),
                "pid": runner.pid,
                "rss_bytes": resident_bytes(runner.pid),
                "base_bytes": runner.base_bytes,
                "triggers": dict(counts.get(runner, Counter()).most_common(_CLASSES)),
            }
            for runner in runners
            if runner.pid is not None
        ]
    }
