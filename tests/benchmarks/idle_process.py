"""A triggerer that also reports the lateness of its own loop: ``python -m tests.benchmarks.idle_process FOLDER N``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from app.interfaces.cli.context import database_url
from app.interfaces.cli.running import begin, run_loop
from app.processes.triggerer.service import serve
from tests.benchmarks.lateness import report_lateness


async def work(folder: Path, capacity: int) -> None:
    """Serve, watched by one more task on the same loop."""
    settings = begin()
    watching = asyncio.create_task(report_lateness(folder / f"{os.getpid()}.lags"))
    try:
        await serve(settings, database_url(settings), capacity=capacity)
    finally:
        watching.cancel()


if __name__ == "__main__":
    run_loop(work(Path(sys.argv[1]), int(sys.argv[2])))
