"""Stores what triggers deliver: whatever waits while one transaction commits is stored together in the next.

While the database is away the same deliveries are tried again until it is back; nobody is answered meanwhile, so no
trigger acknowledges anything. While a consumer has too much waiting, the deliveries of the triggers that feed it wait
here and the others go on. Triggers take turns: one that delivers much waits for those that deliver little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import structs

from app.domain.deliveries import Delivery, Resolution
from app.kernel.crash_points import CrashPoint, reach
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.triggerer.limits import Turns
from app.processes.triggerer.messages import Resolved
from app.processes.triggerer.slices import EVENTS_A_TRANSACTION, slices, weight_of
from app.services import triggers
from app.services.events import Verdict, store_batch
from app.store.database import Database
from app.store.errors import DatabaseUnavailable, StoreError
from app.store.wakeups import Notifier

#: Most messages and bytes of one transaction, unless one delivery alone is larger; and most events, unless one message
#: alone makes more.
BATCH_ITEMS = 2000
BATCH_EVENTS = EVENTS_A_TRANSACTION
BATCH_BYTES = 16 * 1024 * 1024
#: Longest between two looks at how much waits at the consumers, in seconds.
_PRESSURE_SECONDS = 0.2
_PRESSURE_EVENTS = 1000
_DEFECT_PAUSE = 0.2

_log = get_logger("triggerer")


class Receiver(Protocol):
    """Who is told that a delivery is resolved."""

    def send(self, frame: msgspec.Struct) -> None:
        """Queue a frame."""
        ...


class OnPressure(Protocol):
    """Is told that a trigger waits for a consumer, perhaps repeatedly, and when it does so no more."""

    def __call__(self, trigger_id: int, *, waits: bool) -> None:
        """See the class."""
        ...


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A complete delivery (or a part of it, which the ``rest`` follows) and whom to answer."""

    receiver: Receiver
    sequence: int
    delivery: Delivery
    rest: tuple[Delivery, ...] = ()
    turn: float = 0.0
    #: Bytes of the delivery, roughly.
    size: int = 0

    @property
    def events(self) -> int:
        """How many events it makes at most."""
        return sum(weight_of(item) for item in self.delivery.items)


class _Size:
    """How large a transaction has become."""

    __slots__ = ("bytes", "events", "items")

    def __init__(self) -> None:
        self.items = self.events = self.bytes = 0

    def has_room(self, each: Waiting) -> bool:
        return (
            self.items + len(each.delivery.items) <= BATCH_ITEMS
            and self.events + each.events <= BATCH_EVENTS
            and self.bytes + each.size <= BATCH_BYTES
        )

    def add(self, each: Waiting) -> None:
        self.items += len(each.delivery.items)
        self.events += each.events
        self.bytes += each.size


class Committer:
    """One for all runners of a triggerer."""

    def __init__(self, database: Database, notifier: Notifier, *, owner_id: int, settings: Settings) -> None:
        self._database = database
        self._notifier = notifier
        self._owner_id = owner_id
        self._settings = settings
        self._waiting: list[Waiting] = []
        self._held: list[Waiting] = []
        self._saturated: set[int] = set()
        self._looked_at = 0.0
        self._stored_since = 0
        self._wake = asyncio.Event()
        self._trouble = LimitedLog(_log)
        self._turns = Turns()
        #: Those of whom it was told that they wait for a consumer.
        self._told: set[int] = set()
        self.on_pressure: OnPressure | None = None
        #: Set while nothing is in hand.
        self.idle = asyncio.Event()
        self.idle.set()

    def offer(self, waiting: Waiting) -> None:
        """Take a delivery to be stored."""
        first, *rest = slices(waiting.delivery)
        self._queue(structs.replace(waiting, delivery=first, rest=tuple(rest)) if rest else waiting)
        self.idle.clear()
        self._wake.set()

    def _queue(self, waiting: Waiting) -> None:
        delivery = waiting.delivery
        size = sum(len(item.payload or "") + len(item.raw or b"") + 200 for item in delivery.items)
        turn = self._turns.take(delivery.trigger_id, events=waiting.events, size=size)
        self._waiting.append(structs.replace(waiting, size=size, turn=turn))

    def reconsider(self) -> None:
        """Consumers may have caught up: look again at what is held back."""
        if self._held:
            self._wake.set()

    async def run(self) -> None:
        """Store for ever."""
        while True:
            try:
                async with asyncio.timeout(1.0):
                    await self._wake.wait()
            except TimeoutError:
                if not self._held:
                    continue
            self._wake.clear()
            while batch := await self._next_batch():
                await self._store(batch)
            if not self._held:
                self.idle.set()

    async def _next_batch(self) -> list[Waiting]:
        candidates = sorted((*self._held, *self._waiting), key=lambda each: each.turn)
        self._held, self._waiting = [], []
        if not candidates:
            return []
        await self._feel_pressure(candidates)
        batch: list[Waiting] = []
        size = _Size()
        for place, each in enumerate(candidates):
            if each.delivery.trigger_id in self._saturated and each.delivery.items:
                self._held.append(each)
                self._note_pressure(each.delivery.trigger_id, waits=True)
                continue
            if batch and not size.has_room(each):
                self._waiting = [*candidates[place:], *self._waiting]
                break
            batch.append(each)
            self._note_pressure(each.delivery.trigger_id, waits=False)
            self._turns.reached(each.turn)
            size.add(each)
        self._stored_since += size.items
        return batch

    def _note_pressure(self, trigger_id: int, *, waits: bool) -> None:
        if self.on_pressure is not None and (waits or trigger_id in self._told):
            self.on_pressure(trigger_id, waits=waits)
        if waits:
            self._told.add(trigger_id)
        else:
            self._told.discard(trigger_id)

    async def _feel_pressure(self, candidates: Sequence[Waiting]) -> None:
        """Learn which triggers must wait, not more often than needed."""
        now = time.monotonic()
        if now - self._looked_at < _PRESSURE_SECONDS and self._stored_since < _PRESSURE_EVENTS:
            return
        ids = sorted({each.delivery.trigger_id for each in candidates})
        try:
            found = await triggers.saturated(self._database, trigger_ids=ids, limit=self._settings.pending_demand_limit)
        except (StoreError, TimeoutError) as error:
            self._troubled(error)
            return  # Storing meets the same trouble and waits for its end.
        for trigger_id in sorted(found - self._saturated):
            _log.warning(
                "a consumer has too many events waiting: this trigger waits too",
                action="trigger_held_back",
                trigger_id=trigger_id,
            )
        self._saturated = (self._saturated - set(ids)) | found
        self._looked_at, self._stored_since = now, 0

    async def _store(self, batch: list[Waiting]) -> None:
        pause = 0.05
        answers: list[Resolution] = []
        while not answers:
            reach(CrashPoint.RECEIVED)
            try:
                answers = await self._store_together([each.delivery for each in batch])
            except (DatabaseUnavailable, TimeoutError) as error:
                self._troubled(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            except Exception as error:  # noqa: BLE001 — nothing is resolved, so nothing is lost
                await self._set_apart(batch, error)
                return
        reach(CrashPoint.STORED)
        self._trouble.recovered("store", "events are stored again", action="store_recovered")
        for each, answer in zip(batch, answers, strict=True):
            fenced = answer.verdict is Verdict.FENCED
            if each.rest and not fenced:
                # A turn of its own: a large delivery lets the others pass between its parts.
                first, *rest = each.rest
                self._queue(structs.replace(each, delivery=first, rest=tuple(rest)))
            else:
                self._answer(each, fenced=fenced)

    async def _set_apart(self, batch: list[Waiting], error: Exception) -> None:
        """A failure nobody foresaw: find whose it is by trying single deliveries; the one to blame is started again."""
        self._trouble.failed("defect", f"events cannot be stored: {error!r}", action="store_failed", exc_info=error)
        if len(batch) == 1:
            self._answer(batch[0], fenced=True)
            await asyncio.sleep(_DEFECT_PAUSE)
            return
        for each in batch:
            await self._store([each])

    def _answer(self, waiting: Waiting, *, fenced: bool) -> None:
        trigger_id = waiting.delivery.trigger_id
        waiting.receiver.send(Resolved(trigger_id=trigger_id, sequence=waiting.sequence, fenced=fenced))

    def give_up_held(self) -> None:
        """What is held back stays in the broker: its triggers are closed at their yield."""
        held, self._held = self._held, []
        for each in held:
            self._answer(each, fenced=True)
        if not self._waiting:
            self.idle.set()

    async def _store_together(self, deliveries: list[Delivery]) -> list[Resolution]:
        return await store_batch(
            self._database,
            self._notifier,
            self._owner_id,
            deliveries=deliveries,
            raw_limit=self._settings.dead_letter_raw_limit,
        )

    def _troubled(self, error: BaseException) -> None:
        self._trouble.failed(
            "store", f"the database is away, events wait: {error}", action="store_waits", owner_id=self._owner_id
        )
