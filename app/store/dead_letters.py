"""Statements about messages that could not become events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from app.store.database import HotConnection

Content = TypeVar("Content", bytes, str)


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A refused message. ``raw`` is already cut to the limit; ``raw_size`` is its full size in bytes. ``payload`` is
    the JSON text of the event it would have been, if it came that far."""

    trigger_id: int | None
    code: str
    reason: str
    asset_id: int | None = None
    source: str | None = None
    key: str | None = None
    identity: bytes | None = None
    raw: bytes | None = None
    raw_size: int | None = None
    payload: str | None = None


class HeldRow(msgspec.Struct, frozen=True, kw_only=True):
    """A letter as requeueing needs it. ``payload`` is JSON text; ``has_trigger`` says whether its trigger is there."""

    id: int
    trigger_id: int | None
    asset_id: int | None
    source: str | None
    key: str | None
    code: str
    reason: str
    raw: bytes | None
    raw_size: int | None
    payload: str | None
    state: str
    requeued_at: datetime | None
    event_ids: list[int] | None
    has_trigger: bool


async def read_letter(hot: HotConnection, letter_id: int) -> HeldRow | None:
    """One letter."""
    row = await hot.fetchrow(
        """
        SELECT l.id, l.trigger_id, l.asset_id, l.source, l.key, l.code, l.reason, l.raw, l.raw_size,
               l.payload::text AS payload, l.state, l.requeued_at, l.event_ids, t.id IS NOT NULL AS has_trigger
        FROM dead_letter l LEFT JOIN trigger t ON t.id = l.trigger_id
        WHERE l.id = $1::bigint
        """,
        letter_id,
    )
    return None if row is None else HeldRow(**dict(row))


async def mark_requeued(hot: HotConnection, *, letter_id: int, event_ids: Sequence[int]) -> bool:
    """``held → requeued``, and the events name the letter unless they were there before. False: it is not held."""
    found = await hot.fetchval(
        """
        UPDATE dead_letter SET state = 'requeued', requeued_at = now(), event_ids = $2::bigint[]
        WHERE id = $1::bigint AND state = 'held'
        RETURNING id
        """,
        letter_id,
        event_ids,
    )
    return found is not None


async def name_origin(hot: HotConnection, *, letter_id: int, event_ids: Sequence[int]) -> None:
    """Note on events of this transaction which letter they come from."""
    await hot.execute(
        "UPDATE asset_event SET requeued_from = $1::bigint WHERE id = ANY($2::bigint[])", letter_id, event_ids
    )


async def delete_letters(hot: HotConnection, *, letter_ids: Sequence[int]) -> set[int]:
    """Delete letters; those that were there."""
    rows = await hot.fetch("DELETE FROM dead_letter WHERE id = ANY($1::bigint[]) RETURNING id", letter_ids)
    return {row[0] for row in rows}


async def insert_dead_letters(hot: HotConnection, *, rows: Sequence[DeadLetterRow]) -> list[tuple[int, int]]:
    """Insert the letters; a known identity makes no second one. Returns ``(id, trigger id)`` of the new ones."""
    raws = _places(row.raw for row in rows)
    payloads = _places(row.payload for row in rows)
    found = await hot.fetch(
        """
        INSERT INTO dead_letter (trigger_id, asset_id, source, key, identity, code, reason, raw, raw_size, payload)
        SELECT l.trigger_id, a.id, l.source, l.key, l.identity, l.code, l.reason, ($8::bytea[])[l.raw], l.raw_size,
               ($11::json[])[l.payload]
        FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[],
                    $9::int[], $10::bigint[], $12::int[])
            WITH ORDINALITY AS l(trigger_id, asset_id, source, key, identity, code, reason, raw, raw_size, payload,
                                 place)
        LEFT JOIN asset a ON a.id = l.asset_id
        ORDER BY l.identity NULLS FIRST, l.place
        ON CONFLICT (identity) WHERE identity IS NOT NULL DO NOTHING
        RETURNING id, trigger_id
        """,
        [row.trigger_id for row in rows],
        [row.asset_id for row in rows],
        [row.source for row in rows],
        [row.key for row in rows],
        [row.identity for row in rows],
        [row.code for row in rows],
        [row.reason for row in rows],
        list(raws),
        [None if row.raw is None else raws[row.raw] for row in rows],
        [row.raw_size for row in rows],
        list(payloads),
        [None if row.payload is None else payloads[row.payload] for row in rows],
    )
    return [(row[0], row[1]) for row in found]


def _places(contents: Iterable[Content | None]) -> dict[Content, int]:
    """Each content once, with its place in an array of the database: a message that many assets refuse is sent once."""
    places: dict[Content, int] = {}
    for each in contents:
        if each is not None:
            places.setdefault(each, len(places) + 1)
    return places
