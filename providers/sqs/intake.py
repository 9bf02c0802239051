"""Everything between one queue and the trigger's generator: receiving, keeping hidden, deleting, giving back.

A message is *in hand* from its receipt until the service confirms its deletion::

    received ── fresh ──[next_batch]── offered ──[confirm]── resolved ──▶ deleted
                  │                       │                      │
                  │ receipt void          │ close()              └ deletion fails: again, growing pauses
                  ▼                       ▼
              forgotten: it comes again   given back: visible at once

* Several receivers poll at the same time. They stop while anything is fresh, so at most one batch of each waits while
  another is being stored, and the rest stays in the queue.
* While in hand, a message is kept hidden by extending its visibility, which is short, so that a killed process costs
  no more than that.
* A message that is handed out again while in hand only renews the receipt: it is offered once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from providers.sqs.outage import Outage, Outages
from providers.sqs.queue import DEADLINE, BatchResult, Message, Queue
from watchers.attempts import until_one_succeeds
from watchers.errors import SourceError, SourceUnavailable
from watchers.triggers import SourceStatus

#: So many resolved messages may await deletion before no more are received.
UNDELETED_LIMIT = 200
#: Seconds from one request that found nothing to the next, at least.
SHORTEST_POLL = 0.5
#: Seconds that :meth:`Intake.close` takes at most to delete and give back what is in hand.
CLOSING_DEADLINE = 3.0
#: Parts of the visibility time: how often it is looked at, and what must be left of it.
_LOOKS, _MARGIN = 5, 0.6

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a queue is polled. ``visibility`` and ``wait`` in seconds; ``limit`` messages a request."""

    receivers: int
    limit: int
    wait: int
    visibility: int


@dataclass(slots=True, kw_only=True)
class _InHand:
    receipt: str
    hidden_until: float
    is_resolved: bool = False


class Intake:
    """See the module. :meth:`start` before, :meth:`close` after everything else."""

    def __init__(self, queue: Queue, tuning: Tuning, *, status: SourceStatus, log: Log) -> None:
        self._queue = queue
        self._tuning = tuning
        self._log = log
        outages = Outages(status)
        self._receiving = Outage(outages)
        self._deleting = Outage(outages)
        self._in_hand: dict[str, _InHand] = {}
        self._fresh: dict[str, Message] = {}
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: BaseException | None = None
        #: When the queue said last that it has nothing, unless it gave something since.
        self._emptied: float | None = None
        self._extension_fails = False

    def start(self) -> None:
        """Begin to receive."""
        for number in range(self._tuning.receivers):
            self._spawn(self._receive_forever(), name=f"sqs-receiver-{number}")
        self._spawn(self._keep_hidden_forever(), name="sqs-keeper")
        self._spawn(self._delete_forever(), name="sqs-deleter")

    async def next_batch(self) -> list[Message]:
        """All that has been received since the last call, in order, as soon as there is any.

        Raises what ended one of the tasks, which is a mistake in this code.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._fresh or self._broken)
            if self._broken is not None:
                raise self._broken
            batch = list(self._fresh.values())
            self._fresh.clear()
            self._changed.notify_all()
        return batch

    async def confirm(self, messages: Sequence[Message]) -> None:
        """Delete these messages, which are resolved. What fails is repeated in the background."""
        for message in messages:
            self._in_hand[message.id].is_resolved = True
        attempt = self._deleting.attempt
        await self._delete(self._receipts(resolved=True, among=[message.id for message in messages]), attempt=attempt)

    async def lag(self) -> int:
        """How many messages wait. A poll that found nothing lately is the answer: the service's count is approximate
        and lags behind, and a quiet queue costs no request."""
        if self._emptied is not None and self._now() - self._emptied < self._tuning.wait + 2 * DEADLINE:
            return 0
        return await self._queue.visible()

    async def close(self) -> None:
        """End the tasks; delete what is resolved and give back the rest, once, within a deadline."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        resolved, others = self._receipts(resolved=True), self._receipts(resolved=False)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_DEADLINE):
                await asyncio.gather(self._queue.delete(resolved), self._queue.set_visibility(others, seconds=0))

    # ------------------------------------------------------------------------------------------------ receiving

    async def _receive_forever(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(self._has_room)
            if not self._receiving.is_on:
                await self._receive(wait=self._tuning.wait)
                continue
            async with self._receiving.turn:
                if self._receiving.is_on:
                    await asyncio.sleep(self._receiving.pause())
                    await until_one_succeeds(lambda: self._receive(wait=0), pause=self._receiving.pause)

    def _has_room(self) -> bool:
        undeleted = sum(entry.is_resolved for entry in self._in_hand.values())
        return not self._fresh and undeleted < UNDELETED_LIMIT

    async def _receive(self, *, wait: int) -> bool | None:
        """Whether the queue answered: true or none."""
        attempt, visibility = self._receiving.attempt, self._tuning.visibility
        began = self._now()
        try:
            messages = await self._queue.receive(self._tuning.limit, wait=wait, visibility=visibility)
        except SourceError as error:
            self._receiving.failed(error, attempt=attempt)
            return None
        self._receiving.answered()
        if not messages:
            self._emptied = self._now()
            # A server that does not wait (or was not asked to) must not be asked without pause.
            await asyncio.sleep(max(0.0, began + SHORTEST_POLL - self._now()))
            return True
        self._emptied = None
        # Too late by the way back, which the margin covers: a long poll hides from when it answers.
        hidden_until = self._now() + visibility
        async with self._changed:
            for message in messages:
                self._take(message, hidden_until=hidden_until)
            self._changed.notify_all()
        return True

    def _take(self, message: Message, *, hidden_until: float) -> None:
        known = self._in_hand.get(message.id)
        if known is not None:
            known.receipt, known.hidden_until = message.receipt, hidden_until
            return
        self._in_hand[message.id] = _InHand(receipt=message.receipt, hidden_until=hidden_until)
        self._fresh[message.id] = message

    # ------------------------------------------------------------------------------------------------ keeping hidden

    async def _keep_hidden_forever(self) -> None:
        while True:
            await asyncio.sleep(self._tuning.visibility / _LOOKS)
            soon = self._now() + self._tuning.visibility * _MARGIN
            due = {key: entry.receipt for key, entry in self._in_hand.items() if entry.hidden_until < soon}
            if due:
                await self._extend(due)

    async def _extend(self, receipts: dict[str, str]) -> None:
        until = self._now() + self._tuning.visibility
        result = await self._queue.set_visibility(receipts, seconds=self._tuning.visibility)
        for key in result.done:
            if (entry := self._same_receipt(key, receipts)) is not None:
                entry.hidden_until = until
        returned: dict[str, str] = {}
        for key in result.void:
            # Not offered yet: forget it, it comes again. Offered: it stays in hand, so that it is not offered twice.
            if key in self._fresh and self._same_receipt(key, receipts) is not None:
                returned |= self._forget(self._fresh[key])
        self._report_extension(result)
        if returned:
            await self._queue.set_visibility(returned, seconds=0)

    def _forget(self, message: Message) -> dict[str, str]:
        """Drop a fresh message, and with it all of its group: a later one must not be offered before it.

        Returns the receipts of the others, to give them back.
        """
        group = message.attributes.get("MessageGroupId")
        others = {}
        for key, other in list(self._fresh.items()):
            if key == message.id or (group is not None and other.attributes.get("MessageGroupId") == group):
                others[key] = other.receipt
                del self._fresh[key], self._in_hand[key]
        others.pop(message.id)
        return others

    def _report_extension(self, result: BatchResult) -> None:
        """One line when it begins to fail, however often it does."""
        if result.failed and not self._extension_fails:
            self._log.warning(
                "%d messages of %s in hand could not be kept hidden: %s",
                len(result.failed),
                self._queue.address.name,
                _first(result),
                extra={"action": "sqs.extend_failed"},
            )
        self._extension_fails = bool(result.failed)

    def _same_receipt(self, key: str, receipts: dict[str, str]) -> _InHand | None:
        entry = self._in_hand.get(key)
        return entry if entry is not None and entry.receipt == receipts[key] else None

    # ------------------------------------------------------------------------------------------------ deleting

    async def _delete_forever(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._deleting.is_on)
            await asyncio.sleep(self._deleting.pause())
            await self._delete(self._receipts(resolved=True), attempt=self._deleting.attempt)

    async def _delete(self, receipts: dict[str, str], *, attempt: int) -> None:
        result = await self._queue.delete(receipts)
        for key in result.void:
            # The message was deleted, or comes again and is recognised by its identity.
            self._log.info("the receipt of message %s is void", key, extra={"action": "sqs.receipt_void"})
        for key in result.done | result.void:
            self._in_hand.pop(key, None)
        if result.failed:
            self._deleting.failed(_as_error(result, self._queue.address.name), attempt=attempt)
        elif not self._receipts(resolved=True):
            self._deleting.answered()
        async with self._changed:
            self._changed.notify_all()

    def _receipts(self, *, resolved: bool, among: Sequence[str] | None = None) -> dict[str, str]:
        keys = self._in_hand if among is None else among
        entries = ((key, self._in_hand[key]) for key in keys if key in self._in_hand)
        return {key: entry.receipt for key, entry in entries if entry.is_resolved is resolved}

    # ------------------------------------------------------------------------------------------------ tasks

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self._tasks.append(asyncio.create_task(self._guard(work), name=name))

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Hand an unexpected exception to :meth:`next_batch`, so that the trigger ends with it and is restarted."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 — raised again by next_batch
            async with self._changed:
                self._broken = error
                self._changed.notify_all()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _first(result: BatchResult) -> SourceError | str:
    return next(iter(result.failed.values()))


def _as_error(result: BatchResult, queue: str) -> SourceError:
    first = _first(result)
    if isinstance(first, SourceError):
        return first
    return SourceUnavailable(f"{len(result.failed)} messages of {queue} could not be deleted: {first}")
