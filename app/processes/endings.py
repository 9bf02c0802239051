"""Ends that come: of tasks that may take their cancellation for a failure, and of a process that lost its lease."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from app.kernel.telemetry import get_logger

#: Longest that a process may take to clean up after its lease is lost, in seconds: longer than every limit within.
CLEAN_UP_SECONDS = 30.0
#: Longest that a process may take to end after it was asked to, in seconds.
STOP_SECONDS = 20.0
#: Exit status of a process that could not clean up (EX_SOFTWARE of sysexits.h).
GAVE_UP = 70
#: A pool takes ten seconds to let go of a connection whose server is mute; asked again before, it logs a defect.
_ASK_AGAIN = 11.0

_log = get_logger("host")


def end_at_latest(what: str, *, within: float = STOP_SECONDS, give_up: Callable[[int], object] = os._exit) -> None:
    """Called when a process is asked to end: it is ended after ``within`` seconds, whatever its loop waits for.

    What it waits for may never come: its database, once the `standalone` that kept both is gone.
    """

    def end() -> None:
        _log.error(f"{what} does not end within {within:g} s: the process is ended", action="gave_up")
        give_up(GAVE_UP)

    timer = threading.Timer(within, end)
    timer.daemon = True
    timer.start()


async def end_tasks(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks until all are done. Libraries may lose a cancellation, so once is not enough."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_ASK_AGAIN)


@contextmanager
def must_end(
    what: str, *, job_id: int, within: float = CLEAN_UP_SECONDS, give_up: Callable[[int], object] = os._exit
) -> Iterator[None]:
    """End the process if the block takes longer than ``within`` seconds, whatever its loop waits for.

    Whoever started the process starts it again. One that waits for ever would hold its place and do nothing.
    """

    def end() -> None:
        _log.error(
            f"{what} does not end within {within:g} s of the loss of its lease: the process is ended",
            action="gave_up",
            job_id=job_id,
        )
        give_up(GAVE_UP)

    timer = threading.Timer(within, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
