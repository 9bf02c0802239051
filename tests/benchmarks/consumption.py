"""Processor time that each part of a deployment takes: comparable between runs even on a busy machine."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

import psutil

from tests.acceptance.deployment import Deployment

#: Parts by a word of their command line.
_PARTS = {
    "app.processes.executor": "tasks",
    "app.processes.triggerer": "trigger runner",
    "app.processes.dag_processor": "loader",
    "postgres": "PostgreSQL",
}
_COMMANDS = ("standalone", "dag-processor", "triggerer", "scheduler", "api-server")


def processor_seconds(deployment: Deployment) -> dict[str, float]:
    """Seconds of processor time so far, by part; children that have ended count where they were started."""
    found: dict[str, float] = defaultdict(float)
    root = psutil.Process(deployment.pid)
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[_part(process)] += times.user + times.system + times.children_user + times.children_system
    return dict(found)


def per_message(before: dict[str, float], after: dict[str, float], *, messages: int) -> str:
    """Milliseconds of processor time a message, the largest part first."""
    used = {part: (seconds - before.get(part, 0.0)) * 1000 / messages for part, seconds in after.items()}
    parts = sorted(used.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{part} {taken:.1f}" for part, taken in parts if taken >= 0.05)
    return f"processor time a message: {sum(used.values()):.1f} ms ({listed})"


def _part(process: psutil.Process) -> str:
    command = process.cmdline()
    for word, part in _PARTS.items():
        if any(word in each for each in command):
            return part
    return next((name for name in _COMMANDS if name in command), "other")
