"""What triggers deliver and what becomes of it: values that cross from a runner to the store."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why an item makes no event: of any asset, or of those of ``watchers`` if there are any. ``code`` is a stable
    word."""

    code: str
    reason: str
    watchers: tuple[int, ...] = ()


class DeliveryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message. ``payload`` is JSON text, None if refused; ``watchers`` are those whose filter let it pass."""

    payload: str | None
    watchers: tuple[int, ...] = ()
    key: str | None = None
    source: str | None = None
    refusals: tuple[Refusal, ...] = ()
    raw: bytes | None = None
    raw_size: int | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where to resume in a lane of a source; ``position`` is JSON text."""

    source: str
    lane: str
    position: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger yielded at once; stored as one."""

    trigger_id: int
    epoch: int
    items: tuple[DeliveryItem, ...] = ()
    positions: tuple[Position, ...] = ()


class Verdict(StrEnum):
    """What became of a delivery."""

    STORED = "stored"
    FENCED = "fenced"


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a delivery. Stored are also duplicates, dead letters and items that no filter let pass."""

    verdict: Verdict
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
