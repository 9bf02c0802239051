"""Which trigger is executing: told to the parent at every step of every task that a trigger started.

The parent reads it from shared memory while this process blocks, and after it died. A task belongs to the trigger in
whose context it was created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any
from weakref import WeakSet

from app.processes.triggerer.slot import BEAT, STEP, TRIGGER, Slot

#: The trigger whose code runs in this context; 0 is none.
CURRENT: ContextVar[int] = ContextVar("trigger_id", default=0)
#: Pause between two signs of life of the loop itself, in seconds.
BEAT_PAUSE = 0.05


class Exited(RuntimeError):
    """Code of a trigger tried to end the whole process."""


class _Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that says whose it is while it executes."""

    __slots__ = ("_coroutine", "_numbers", "_trigger_id")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], numbers: memoryview[int], trigger_id: int) -> None:
        self._coroutine = coroutine
        self._numbers = numbers
        self._trigger_id = trigger_id

    def send(self, value: Any) -> Any:
        numbers = self._numbers
        numbers[TRIGGER] = self._trigger_id
        numbers[STEP] += 1
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise Exited(f"a task of this trigger raised {type(error).__name__}") from error
        finally:
            numbers[TRIGGER] = 0

    def throw(self, *error: Any) -> Any:
        numbers = self._numbers
        numbers[TRIGGER] = self._trigger_id
        numbers[STEP] += 1
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt) as exit_:
            raise Exited(f"a task of this trigger raised {type(exit_).__name__}") from exit_
        finally:
            numbers[TRIGGER] = 0

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        # What debuggers and libraries ask of a coroutine: its name, frame and code.
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()


class Attribution:
    """Makes the tasks of a loop say whose they are, and knows the tasks of each trigger."""

    def __init__(self, slot: Slot) -> None:
        self._numbers = slot.numbers
        #: Tasks that triggers started themselves.
        self._tasks: dict[int, WeakSet[asyncio.Task[Any]]] = {}

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Attribute every task that ``loop`` starts from now on, and let the loop itself show that it turns."""
        loop.set_task_factory(self._make)
        self._beat(loop)

    def host(self, coroutine: Coroutine[Any, Any, None], *, trigger_id: int) -> asyncio.Task[None]:
        """The task that hosts a trigger. It is no concern of :meth:`tasks_of`."""
        context = copy_context()
        context.run(CURRENT.set, trigger_id)
        stepped = _Stepped(coroutine, self._numbers, trigger_id)
        return asyncio.Task(stepped, name=f"trigger-{trigger_id}", context=context)

    def tasks_of(self, trigger_id: int) -> list[asyncio.Task[Any]]:
        """The unfinished tasks that code in the trigger's context created."""
        return [task for task in self._tasks.get(trigger_id, ()) if not task.done()]

    def forget(self, trigger_id: int) -> None:
        """The trigger is gone."""
        self._tasks.pop(trigger_id, None)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._numbers[BEAT] += 1
        loop.call_later(BEAT_PAUSE, self._beat, loop)

    def _make(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: Context | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        trigger_id = CURRENT.get() if context is None else context.get(CURRENT, 0)
        if trigger_id:
            coroutine = _Stepped(coroutine, self._numbers, trigger_id)
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context, **options)
        if trigger_id:
            self._tasks.setdefault(trigger_id, WeakSet()).add(task)
        return task
