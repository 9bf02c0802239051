"""What a runner and a store do with a trigger, in small: the counterpart of the contract in ``watchers.triggers``.

:class:`Ledger` stands for the database: it outlives triggers, recognises what it has by (source, key), keeps positions.
:class:`Driver` stands for the runner: it resumes the generator only when the ledger has committed what was yielded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from watchers.triggers import BaseEventTrigger, PositionUpdate, SourceStatus, TriggerEvent

#: Seconds that anything may take on a busy machine before a test calls it dead.
PATIENCE = 45.0

logger = logging.getLogger(__name__)


class StoreFailed(Exception):
    """The store refuses, as a database that is down does."""


class Ledger:
    """Events, identities and positions; a commit takes all or nothing of what was yielded."""

    def __init__(self) -> None:
        self.events: list[TriggerEvent] = []
        self.duplicates: list[TriggerEvent] = []
        self.positions: dict[str, dict[str, Any]] = {}
        self.batches: list[list[TriggerEvent]] = []
        #: Everything yielded so far, whether it was committed or not.
        self.offered: list[TriggerEvent] = []
        self.failures_left = 0
        self._identities: set[tuple[str, str]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._changed = asyncio.Condition()

    def close_gate(self) -> None:
        """Let no commit of events through until :meth:`open_gate` (a first start may store its position)."""
        self._open.clear()

    def open_gate(self) -> None:
        """Let commits through again."""
        self._open.set()

    async def offer(self, events: Sequence[TriggerEvent]) -> None:
        """Note what a trigger yielded, before anything is stored."""
        self.offered.extend(events)
        await self._tell()

    async def commit(self, items: Sequence[TriggerEvent | PositionUpdate]) -> None:
        """Store one unit; raises :class:`StoreFailed` while ``failures_left`` says so."""
        if any(isinstance(item, TriggerEvent) for item in items):
            await self._open.wait()
        if self.failures_left:
            self.failures_left -= 1
            raise StoreFailed("the store is down")
        batch = [item for item in items if isinstance(item, TriggerEvent)]
        for event in batch:
            assert event.source is not None
            identity = (event.source, event.key)
            if event.key is not None and identity in self._identities:
                self.duplicates.append(event)
                continue
            if event.key is not None:
                self._identities.add((event.source, event.key))
            self.events.append(event)
        for item in items:
            if isinstance(item, PositionUpdate):
                self.positions.setdefault(item.source, {}).update(item.lanes)
        if batch:
            self.batches.append(batch)
        await self._tell()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until ``condition`` holds; looked at after each offer and each commit."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(condition)

    async def wait_for_events(self, count: int) -> list[TriggerEvent]:
        """The events, once there are at least ``count``."""
        await self.wait_until(lambda: len(self.events) >= count)
        return self.events

    async def wait_for_offer(self, count: int) -> list[TriggerEvent]:
        """What was yielded, once there are at least ``count``."""
        await self.wait_until(lambda: len(self.offered) >= count)
        return self.offered

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class RecordedStatus(SourceStatus):
    """Keeps what a trigger says about its source."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.failure_times: list[float] = []
        self.recoveries = 0
        self.consecutive = 0

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)
        self.failure_times.append(asyncio.get_running_loop().time())
        self.consecutive += 1

    def recovered(self) -> None:
        self.recoveries += 1
        self.consecutive = 0


class Driver:
    """Runs one trigger against a ledger until :meth:`stop`.

    With ``stop_after_commit`` the generator is closed instead of resumed after its first commit: a crash between
    storing and acknowledging.
    """

    def __init__(self, trigger: BaseEventTrigger, ledger: Ledger, *, stop_after_commit: bool = False) -> None:
        self.trigger = trigger
        self.ledger = ledger
        self.status = RecordedStatus()
        self.error: BaseException | None = None
        self._stop_after_commit = stop_after_commit
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run the trigger in a task of its own."""
        self.trigger.status = self.status
        self.trigger.positions = {source: dict(lanes) for source, lanes in self.ledger.positions.items()}
        self._task = asyncio.create_task(self._run(), name="driver")

    async def stop(self) -> None:
        """Close the generator as a runner does, wherever it is; raises what the trigger raised, if it did."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE):
                await self._task
        if self.error is not None:
            raise AssertionError("the trigger ended by itself") from self.error

    async def wait_ended(self) -> None:
        """Until the run ended by itself (``stop_after_commit``)."""
        assert self._task is not None
        async with asyncio.timeout(PATIENCE):
            await self._task

    async def _run(self) -> None:
        generator = self.trigger.run()
        try:
            async for yielded in generator:
                await self._resolve(yielded)
                if self._stop_after_commit:
                    return
            self.error = AssertionError("an event trigger returned")
        except Exception as error:
            logger.exception("the trigger failed")
            self.error = error
        finally:
            await generator.aclose()  # type: ignore[attr-defined]
            await self.trigger.cleanup()

    async def _resolve(self, yielded: Any) -> None:
        items = list(yielded) if isinstance(yielded, Sequence) else [yielded]
        await self.ledger.offer([item for item in items if isinstance(item, TriggerEvent)])
        while True:
            try:
                return await self.ledger.commit(items)
            except StoreFailed:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def driving(
    trigger: BaseEventTrigger, ledger: Ledger, *, stop_after_commit: bool = False
) -> AsyncIterator[Driver]:
    """Run ``trigger`` against ``ledger`` inside a ``with`` block."""
    driver = Driver(trigger, ledger, stop_after_commit=stop_after_commit)
    driver.start()
    try:
        yield driver
    finally:
        await driver.stop()


async def eventually(condition: Callable[[], Any], *, within: float = PATIENCE) -> Any:
    """The first true result of ``condition`` (plain or awaitable), asked for every 20 ms."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result
        assert loop.time() < end, f"not within {within} s: last result {result!r}"
        await asyncio.sleep(0.02)
