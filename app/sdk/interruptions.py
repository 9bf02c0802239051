"""Ending user code from a signal, in plain and in asynchronous code.

An exception raised by a signal handler inside an event loop may hit any of its tasks, or the loop itself. So while a
coroutine runs as the task's main one, it is cancelled instead, and the cancellation becomes the exception. Code that
does not let itself be cancelled is interrupted by raising after all, :data:`PATIENCE` seconds later.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from app.sdk.errors import TaskTimeout

if TYPE_CHECKING:
    import asyncio

PATIENCE = 0.4


class TaskTerminated(BaseException):
    """The process is asked to end (SIGTERM). Not an ``Exception``, so that a task's own handlers let it pass."""


@dataclass(slots=True)
class _Main:
    """The coroutine that is the task, while it runs, and what is to end it."""

    task: asyncio.Task[Any] | None = None
    reason: BaseException | None = None


_main = _Main()


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """``asyncio.run`` for user code that :func:`interruptible` may end."""
    import asyncio

    async def run() -> Any:
        _main.task, _main.reason = asyncio.current_task(), None
        try:
            return await coroutine
        except asyncio.CancelledError:
            if _main.reason is not None:
                raise _main.reason from None
            raise
        finally:
            _main.task = None

    return asyncio.run(run())


@contextlib.contextmanager
def interruptible(seconds: float | None) -> Iterator[None]:
    """In this block SIGTERM ends the code with :class:`TaskTerminated`, and ``seconds`` with :class:`TaskTimeout`.

    Without effect outside of the main thread, where Python runs no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _main.task, _main.reason = None, None
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    signal.signal(signal.SIGTERM, _handler(lambda: TaskTerminated("the attempt was asked to end (SIGTERM)")))
    signal.signal(
        signal.SIGALRM,
        _handler(lambda: TaskTimeout(f"the attempt took longer than its execution_timeout of {seconds:g} s")),
    )
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        disarm()
        for number, handler in before.items():
            signal.signal(number, handler)


def disarm() -> None:
    """No further interruption: what ends the attempt is known, and clean-up is to run through."""
    if threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _handler(make: Callable[[], BaseException]) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a signal handler
        task = _main.task
        if task is None or task.done() or _main.reason is not None:
            raise _main.reason or make()
        _main.reason = make()
        task.get_loop().call_soon_threadsafe(task.cancel)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    return handle
