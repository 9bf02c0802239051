"""Coming back after an outage: one attempt after the other, without waiting for one that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")

#: A new attempt begins at the latest so many seconds after the last one, whether that has ended or not.
HANG_SECONDS = 2.0
#: Attempts under way at the same time, at most; of more the oldest is given up.
ATTEMPTS_AT_ONCE = 8


async def until_one_succeeds(
    attempt: Callable[[], Awaitable[Result | None]],
    *,
    pause: Callable[[], float],
    discard: Callable[[Result], Awaitable[object]] | None = None,
) -> Result:
    """What the first successful attempt returns; the others are cancelled then.

    An attempt that failed returns ``None``, having reported why, and the next begins after ``pause()`` seconds. One
    that hangs, because the network swallows what it sent, may go on to its own deadline, but the next begins beside it
    after :data:`HANG_SECONDS`: so work goes on soon after the network is back, however long the deadlines are. What an
    attempt raises is raised. ``discard`` gets what an attempt returned that came too late.
    """
    loop = asyncio.get_running_loop()
    running: list[asyncio.Future[Result | None]] = []
    try:
        while True:
            newest = asyncio.ensure_future(attempt())
            running.append(newest)
            if len(running) > ATTEMPTS_AT_ONCE:
                running[0].cancel()
            has_failed, begin = False, loop.time() + HANG_SECONDS
            while (left := begin - loop.time()) > 0:
                result = await _next_result(running, within=left)
                if result is not None:
                    return result
                if not has_failed and newest not in running:
                    has_failed, begin = True, loop.time() + pause()
    finally:
        await _end(running, discard)


async def _next_result(running: list[asyncio.Future[Result | None]], *, within: float) -> Result | None:
    """The result of an attempt that ends within that time; ``None`` if none ends, or one fails. It is not running any
    more then."""
    if not running:
        await asyncio.sleep(within)
        return None
    done, _ = await asyncio.wait(running, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        result = None if task.cancelled() else task.result()
        running.remove(task)
        if result is not None:
            return result
    return None


async def _end(
    running: list[asyncio.Future[Result | None]], discard: Callable[[Result], Awaitable[object]] | None
) -> None:
    for task in running:
        task.cancel()
    for found in await asyncio.gather(*running, return_exceptions=True):
        if discard is not None and found is not None and not isinstance(found, BaseException):
            await discard(found)
