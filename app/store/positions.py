"""Statements about positions: where a trigger resumes in its sources."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.store.database import HotConnection


class PositionRow(msgspec.Struct, frozen=True, kw_only=True):
    """``position`` is JSON text that only the trigger interprets."""

    trigger_id: int
    source: str
    lane: str
    position: str


async def upsert_positions(hot: HotConnection, *, rows: Sequence[PositionRow]) -> None:
    """Write the positions; the caller's transaction also checks owner and epoch of each trigger.

    ``rows`` must name no lane twice.
    """
    await hot.execute(
        """
        INSERT INTO source_position (trigger_id, source, lane, position, updated_at)
        SELECT p.trigger_id, p.source, p.lane, p.position, now()
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::json[]) AS p(trigger_id, source, lane, position)
        ORDER BY 1, 2, 3
        ON CONFLICT (trigger_id, source, lane) DO UPDATE SET position = excluded.position, updated_at = now()
        """,
        [row.trigger_id for row in rows],
        [row.source for row in rows],
        [row.lane for row in rows],
        [row.position for row in rows],
    )


async def positions_of(hot: HotConnection, *, trigger_ids: Sequence[int]) -> list[PositionRow]:
    """All positions of the triggers."""
    rows = await hot.fetch(
        "SELECT trigger_id, source, lane, position FROM source_position WHERE trigger_id = ANY($1::bigint[])",
        trigger_ids,
    )
    return [PositionRow(trigger_id=row[0], source=row[1], lane=row[2], position=row[3]) for row in rows]
