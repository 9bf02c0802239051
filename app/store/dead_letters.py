"""Statements about messages that could not become events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


async def insert_dead_letters(hot: HotConnection, *, rows: Sequence[DeadLetterRow]) -> list[int]:
    """Insert the letters; a known identity makes no second one. Returns the triggers of the new ones."""
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
        RETURNING trigger_id
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
    return [row[0] for row in found]


def _places(contents: Iterable[Content | None]) -> dict[Content, int]:
    """Each content once, with its place in an array of the database: a message that many assets refuse is sent once."""
    places: dict[Content, int] = {}
    for each in contents:
        if each is not None:
            places.setdefault(each, len(places) + 1)
    return places
