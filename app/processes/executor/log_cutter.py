"""Cuts the logs of attempts into which something writes past the task's own limit.

The task process stops at the limit by itself. What a child process or C code writes straight to a descriptor passes it;
only whoever stands outside can stop that, also while the task process is stuck.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Set

from app.kernel.attempt_logs import append_line
from app.kernel.telemetry import LimitedLog, get_logger

_log = get_logger("executor")

#: How often running attempts' logs are looked at, in seconds.
LOOK_INTERVAL = 1.0
#: How much a log may pass its limit, in bytes: the lines that say why it ends.
ROOM = 65_536
#: How much of that is kept of a log that is cut, in bytes: the line by which the task process itself said so.
OWN_LINE = 512


class LogCutter:
    """Keeps the logs it is shown at ``limit`` bytes, but for a few lines."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        #: Where each log that was cut goes on.
        self._ends: dict[str, int] = {}
        self._trouble = LimitedLog(_log)

    async def look(self, paths: Set[str]) -> int:
        """Cut those of the logs that have grown too large; how many. Logs not named are forgotten."""
        self._ends = {path: end for path, end in self._ends.items() if path in paths}
        return await asyncio.to_thread(lambda: sum(self._cut(path) for path in sorted(paths)))

    def _cut(self, path: str) -> bool:
        try:
            if os.stat(path).st_size <= self._limit + ROOM:  # noqa: PTH116 - many times a second
                return False
            end = self._ends.get(path)
            os.truncate(path, self._limit + OWN_LINE if end is None else end)
            if end is None:
                event = f"this log has reached its limit of {self._limit:,} bytes: what is written past it is cut"
                append_line(path, event, level="warning", logger="tidegate.executor")
                self._ends[path] = os.stat(path).st_size  # noqa: PTH116
        except FileNotFoundError:
            return False
        except OSError as error:
            self._trouble.failed("cut", "a log cannot be cut", action="log_not_cut", path=path, error=str(error))
            return False
        return True
