"""What a trigger yielded, as items for the store: payloads encoded, filters applied, refusals explained."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.deliveries import DeliveryItem, Position, Refusal
from app.domain.fan_out import FanOut, Watchers
from app.kernel.frames import MAX_FRAME
from app.processes.triggerer.messages import Configure
from watchers.errors import PayloadRefused
from watchers.payloads import encode_payload
from watchers.triggers import BaseTrigger, PositionUpdate, TriggerEvent

#: Longest key or source, in characters.
LONGEST_NAME = 4096
#: Largest position of a lane, as JSON.
MAX_POSITION_BYTES = 65_536
#: What one frame may carry, roughly; an item alone is always smaller than a frame.
CHUNK_BYTES = 2 * 1024 * 1024
_CHUNK_ITEMS = 2000
#: Longest that what is yielded is encoded before other triggers have their turn, in seconds.
_LONGEST_TURN = 0.02


class NotAnEvent(Exception):
    """``run()`` yielded something that is no event."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """A part of a yield that is stored together."""

    items: list[DeliveryItem] = field(default_factory=list)
    #: The last of each lane, by source and lane.
    positions: dict[tuple[str, str], Position] = field(default_factory=dict)
    size: int = 0
    is_last: bool = True


class Yields:
    """Encodes what one trigger yields; ``watch`` may be called again when its watchers change."""

    def __init__(self, settings: Configure, *, default_source: str, mask: Callable[[str], str] = str) -> None:
        self._max_bytes = min(settings.max_payload_bytes, MAX_FRAME - 2 * 1024 * 1024)
        self._max_depth = settings.max_payload_depth
        self._raw_limit = settings.raw_limit
        self._most_events = settings.pending_events
        self._most_bytes = settings.pending_bytes
        self._default_source = default_source
        self._mask = mask
        self._fan_out = FanOut(Watchers())

    def watch(self, watchers: Watchers) -> None:
        """From now on these watchers get what passes their filters and schemas."""
        self._fan_out = FanOut(watchers, mask=self._mask, known=self._fan_out)

    async def batches(self, yielded: Any) -> AsyncGenerator[Batch, None]:
        """What was yielded, in parts each of which is stored together; at least one, the positions with the last.

        Raises :class:`NotAnEvent` before the first part. A payload that is refused is an item that says why. Others
        have their turn while much is encoded.
        """
        batch = Batch()
        turn_began = time.monotonic()
        for each in _members(yielded):
            if time.monotonic() - turn_began > _LONGEST_TURN:
                await asyncio.sleep(0)
                turn_began = time.monotonic()
            for item in await self._encoded(each, batch.positions):
                size = weight(item)
                if batch.items and (len(batch.items) >= self._most_events or batch.size + size > self._most_bytes):
                    positions, batch.positions, batch.is_last = batch.positions, {}, False
                    yield batch
                    batch = Batch(positions=positions)
                    turn_began = time.monotonic()
                batch.items.append(item)
                batch.size += size
        yield batch

    async def _encoded(
        self, yielded: TriggerEvent | PositionUpdate, positions: dict[tuple[str, str], Position]
    ) -> list[DeliveryItem]:
        """The item of an event; of an update what is refused of it, while the rest goes into ``positions``."""
        return [await self._item(yielded)] if isinstance(yielded, TriggerEvent) else self._placed(yielded, positions)

    async def _item(self, event: TriggerEvent) -> DeliveryItem:
        source = self._default_source if event.source is None else event.source
        for name, text in (("key", event.key), ("source", source)):
            if text is not None and (not isinstance(text, str) or len(text) > LONGEST_NAME):
                reason = f"the {name} is {_described(text)}; it must be a text of at most {LONGEST_NAME} characters"
                return self._refused(event, Refusal(code=name, reason=reason), key=None, source=self._default_source)
        key = None if event.key is None else _clean(event.key)
        source = _clean(source)
        try:
            text = encode_payload(event.payload, max_bytes=self._max_bytes, max_depth=self._max_depth)
        except PayloadRefused as refused:
            return self._refused(event, Refusal(code=refused.code, reason=str(refused)), key=key, source=source)
        watchers, refusals = await self._passing(text)
        raw = event.raw[: self._raw_limit] if refusals and event.raw is not None else None
        return DeliveryItem(
            payload=text,
            watchers=watchers,
            key=key,
            source=source,
            refusals=refusals,
            raw=raw,
            raw_size=None if raw is None or event.raw is None else len(event.raw),
        )

    async def _passing(self, text: str) -> tuple[tuple[int, ...], tuple[Refusal, ...]]:
        judging = self._fan_out.judging(text)
        while True:
            try:
                next(judging)
            except StopIteration as end:
                found: tuple[tuple[int, ...], tuple[Refusal, ...]] = end.value
                return found
            await asyncio.sleep(0)

    def _refused(self, event: TriggerEvent, refusal: Refusal, *, key: str | None, source: str) -> DeliveryItem:
        raw, size = _raw(event, self._raw_limit)
        return DeliveryItem(payload=None, key=key, source=source, refusals=(refusal,), raw=raw, raw_size=size)

    def _placed(self, update: PositionUpdate, positions: dict[tuple[str, str], Position]) -> list[DeliveryItem]:
        refused: list[DeliveryItem] = []
        for lane, value in update.lanes.items():
            try:
                text = encode_payload(value, max_bytes=MAX_POSITION_BYTES)
            except PayloadRefused as error:
                reason = f"the position of lane {str(lane)[:200]!r}: {error}"
                refused.append(DeliveryItem(payload=None, refusals=(Refusal(code="position", reason=reason),)))
            else:
                found = Position(source=_clean(update.source), lane=_clean(lane), position=text)
                positions.pop((found.source, found.lane), None)
                positions[found.source, found.lane] = found
        return refused


def _members(yielded: Any) -> tuple[TriggerEvent | PositionUpdate, ...]:
    """What was yielded, one after the other. Raises :class:`NotAnEvent`."""
    together = tuple(yielded) if isinstance(yielded, (list, tuple)) else (yielded,)
    for each in together:
        if not isinstance(each, (TriggerEvent, PositionUpdate)):
            raise NotAnEvent(f"run() yielded {_described(each)}; it may yield TriggerEvent, or a list of them")
    return together


def weight(item: DeliveryItem) -> int:
    """Bytes that an item takes in a frame, at most."""
    text = item.payload or ""
    size = len(text) if text.isascii() else 4 * len(text)
    size += len(item.raw or b"") + 9 * len(item.watchers) + 300
    return size + sum(len(each.reason) * 4 + 9 * len(each.watchers) for each in item.refusals)


def chunks(items: Sequence[DeliveryItem]) -> Iterator[tuple[DeliveryItem, ...]]:
    """The items in parts that fit a frame each; at least one part."""
    part: list[DeliveryItem] = []
    size = 0
    for item in items:
        added = weight(item)
        if part and (size + added > CHUNK_BYTES or len(part) >= _CHUNK_ITEMS):
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += added
    yield tuple(part)


def default_source_of(trigger: BaseTrigger, *, classpath: str, identity: str) -> str:
    """What names the source of events that name none."""
    ask = getattr(trigger, "default_source", None)
    named = ask() if ask is not None else None
    return named if isinstance(named, str) else f"{classpath}:{identity}"


def _raw(event: TriggerEvent, limit: int) -> tuple[bytes | None, int | None]:
    """What a person may look at: the undecoded message, or what of the payload has a plain byte form."""
    if isinstance(event.raw, (bytes, bytearray, memoryview)):
        return bytes(event.raw[:limit]), len(event.raw)
    payload = event.payload
    if type(payload) is bytes:
        return payload[:limit], len(payload)
    if type(payload) is str:
        return payload[:limit].encode("utf-8", "backslashreplace")[:limit], len(payload)
    return None, None


def _clean(text: Any) -> str:
    """Text that a frame can carry: lone surrogates are spelled out, always the same way."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def _described(value: Any) -> str:
    size = f" of length {len(value)}" if isinstance(value, (str, bytes)) else ""
    return f"a {type(value).__name__}{size}"
