"""Running a trigger under its contract without a triggerer: for tests of triggers, ours and their authors'."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from watchers.triggers import BaseTrigger, PositionUpdate, TriggerEvent

#: Receives what one ``yield`` gave. Returning (or the end of what it returns) means resolved. Raising means that the
#: owner lost the trigger: the generator is closed at its ``yield``.
Store: TypeAlias = Callable[[Sequence[TriggerEvent | PositionUpdate]], Awaitable[None] | None]


async def drive(trigger: BaseTrigger, *, store: Store) -> None:
    """Run ``trigger`` until it ends, ``store`` raises, or this coroutine is cancelled; then close it and clean up.

    What follows a ``yield`` in the trigger runs only once ``store`` has returned.
    """
    try:
        generator: Any = trigger.run()
        try:
            async for yielded in generator:
                together = yielded if isinstance(yielded, (list, tuple)) else [yielded]
                resolving = store(together)
                if inspect.isawaitable(resolving):
                    await resolving
        finally:
            await generator.aclose()
    finally:
        await trigger.cleanup()


class Recording:
    """What a trigger yielded so far: each commit by itself, and all events and stored positions."""

    def __init__(self) -> None:
        self.commits: list[list[TriggerEvent | PositionUpdate]] = []
        self.positions: dict[str, dict[str, Any]] = {}
        self.failure: BaseException | None = None
        self._changed = asyncio.Condition()

    @property
    def events(self) -> list[TriggerEvent]:
        return [item for commit in self.commits for item in commit if isinstance(item, TriggerEvent)]

    @property
    def payloads(self) -> list[Any]:
        return [event.payload for event in self.events]

    async def store(self, together: Sequence[TriggerEvent | PositionUpdate]) -> None:
        """Note one commit."""
        async with self._changed:
            self.commits.append(list(together))
            for item in together:
                if isinstance(item, PositionUpdate):
                    self.positions.setdefault(item.source, {}).update(item.lanes)
            self._changed.notify_all()

    async def until(self, count: int, *, within: float = 30.0) -> list[TriggerEvent]:
        """Wait for at least ``count`` events and return all.

        Raises what ended the trigger if it failed first, ``TimeoutError`` after ``within`` seconds.
        """
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count or self.failure is not None)
        if len(self.events) < count and self.failure is not None:
            raise self.failure
        return self.events

    async def note_failure(self, failure: BaseException) -> None:
        """Note what ended the trigger."""
        async with self._changed:
            self.failure = failure
            self._changed.notify_all()


@asynccontextmanager
async def driving(trigger: BaseTrigger, *, store: Store | None = None) -> AsyncIterator[Recording]:
    """Drive ``trigger`` beside the body of a ``with`` block, recording what it yields; stop it at the block's end.

    ``store`` is called before the recording notes a commit. What the trigger or ``store`` raised is raised by
    :meth:`Recording.until`, else at the block's end.
    """
    recording = Recording()

    async def note(together: Sequence[TriggerEvent | PositionUpdate]) -> None:
        resolving = store(together) if store is not None else None
        if inspect.isawaitable(resolving):
            await resolving
        await recording.store(together)

    async def run() -> None:
        try:
            await drive(trigger, store=note)
        except Exception as failure:
            await recording.note_failure(failure)
            raise

    running = asyncio.create_task(run())
    try:
        yield recording
    finally:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled():
        running.result()
