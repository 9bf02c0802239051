"""Wait for what must become true; the limit is a liveness bound with room for a busy machine, not a measure."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

Value = TypeVar("Value")
LIMIT = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1


def eventually_sync(predicate: Callable[[], Value], timeout: float = LIMIT, *, what: str | None = None) -> Value:
    """Ask until the answer is truthy and return it; AssertionError with the last answer after ``timeout`` seconds.

    AssertionErrors of the predicate count as "not yet"; any other exception is raised at once.
    """
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        answer, doubt = _ask(predicate)
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(predicate, timeout, what, answer)) from doubt
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@overload
async def eventually(
    predicate: Callable[[], Awaitable[Value]], timeout: float = LIMIT, *, what: str | None = None
) -> Value: ...
@overload
async def eventually(predicate: Callable[[], Value], timeout: float = LIMIT, *, what: str | None = None) -> Value: ...
async def eventually(predicate: Callable[[], Any], timeout: float = LIMIT, *, what: str | None = None) -> Any:
    """The same on an event loop: ``await eventually(…)``; ``predicate`` may be a coroutine function."""
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        doubt: AssertionError | None = None
        answer: Any = None
        try:
            found = predicate()
            answer = await found if inspect.isawaitable(found) else found
        except AssertionError as error:
            doubt = error
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(_complaint(predicate, timeout, what, answer)) from doubt
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _ask(predicate: Callable[[], Value]) -> tuple[Value | None, AssertionError | None]:
    try:
        return predicate(), None
    except AssertionError as error:
        return None, error


def _complaint(predicate: Callable[..., object], timeout: float, what: str | None, answer: object) -> str:
    name = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"not true within {timeout:g} s: {name} (last answer: {answer!r})"
