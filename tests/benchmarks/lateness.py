"""How late an event loop is: what someone who shares it with many others sees."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from watchers.temporal import DateTimeTrigger
from watchers.triggers import BaseEventTrigger, Yielded

#: Pause that is asked for; how much longer it takes is the lag.
_PAUSE = 0.01
_REPORT_EVERY = 0.25


async def report_lateness(path: Path, count: Callable[[], int] = lambda: 0) -> None:
    """For ever: append ``{"at", "count", "lags"}`` lines (Unix time, milliseconds) to ``path``."""
    lags: list[float] = []
    reported = time.monotonic()
    while True:
        asked = time.monotonic()
        await asyncio.sleep(_PAUSE)
        now = time.monotonic()
        lags.append(round((now - asked - _PAUSE) * 1000, 2))
        if now - reported >= _REPORT_EVERY:
            reported = now
            with path.open("a") as file:
                file.write(json.dumps({"at": time.time(), "count": count(), "lags": lags}) + "\n")
            lags = []


def reports(path: Path) -> list[dict[str, Any]]:
    """What was reported so far; the last line may be cut by a kill."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def last_count(path: Path) -> int:
    """The ``count`` reported last."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65_536))
        lines = [line for line in file.read().splitlines()[1:] if line.endswith(b"}")]
    return int(json.loads(lines[-1])["count"]) if lines else 0


class Probe(BaseEventTrigger):
    """Reports the lateness of its runner's loop to ``<folder>/<pid>.lags``, with how many timers have begun there."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Probe", {"folder": self.folder}

    async def run(self) -> AsyncIterator[Yielded]:
        begun = 0
        run = DateTimeTrigger.run

        def counted(trigger: DateTimeTrigger) -> Any:
            nonlocal begun
            begun += 1
            return run(trigger)

        DateTimeTrigger.run = counted  # type: ignore[method-assign]
        await report_lateness(Path(self.folder) / f"{os.getpid()}.lags", lambda: begun)
        yield []
