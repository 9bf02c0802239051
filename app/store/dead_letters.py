"""Statements about messages that could not become events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.store.database import HotConnection


class DeadLetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A refused message. ``raw`` is already cut to the limit; ``raw_size`` is its full size in bytes."""

    trigger_id: int | None
    code: str
    reason: str
    asset_id: int | None = None
    source: str | None = None
    key: str | None = None
    identity: bytes | None = None
    raw: bytes | None = None
    raw_size: int | None = None


async def insert_dead_letters(hot: HotConnection, *, rows: Sequence[DeadLetterRow]) -> list[int]:
    """Insert the letters; a known identity makes no second one. Returns the triggers of the new ones."""
    found = await hot.fetch(
        """
        INSERT INTO dead_letter (trigger_id, asset_id, source, key, identity, code, reason, raw, raw_size)
        SELECT l.trigger_id, a.id, l.source, l.key, l.identity, l.code, l.reason, l.raw, l.raw_size
        FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[],
                    $8::bytea[], $9::bigint[])
            WITH ORDINALITY AS l(trigger_id, asset_id, source, key, identity, code, reason, raw, raw_size, place)
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
        [row.raw for row in rows],
        [row.raw_size for row in rows],
    )
    return [row[0] for row in found]
