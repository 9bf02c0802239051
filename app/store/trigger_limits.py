"""Statements about triggers that wait for a limit, and about wishes that one starts again."""

from __future__ import annotations

from app.store.database import HotConnection


async def note_throttled(hot: HotConnection, *, owner_id: int, trigger_id: int, epoch: int, reason: str | None) -> bool:
    """Record why a trigger waits at its yield; None: it does not. False: no longer this owner's."""
    found = await hot.fetchval(
        """
        UPDATE trigger
        SET throttled_reason = $4::text,
            throttled_since = CASE WHEN $4::text IS NOT NULL THEN coalesce(throttled_since, now()) END
        WHERE id = $2::bigint AND owner_id = $1::bigint AND epoch = $3::bigint
        RETURNING id
        """,
        owner_id,
        trigger_id,
        epoch,
        reason,
    )
    return found is not None


async def request_retry(hot: HotConnection, *, trigger_id: int) -> str | None:
    """Ask the owner of a trigger that backs off or is quarantined to start it now; its state, None if there is none."""
    status: str | None = await hot.fetchval(
        """
        WITH held AS MATERIALIZED (
            SELECT id, status FROM trigger WHERE id = $1::bigint FOR NO KEY UPDATE
        ), asked AS (
            UPDATE trigger t SET retry_requested_at = coalesce(t.retry_requested_at, now())
            FROM held WHERE t.id = held.id AND held.status IN ('backing_off', 'quarantined')
        )
        SELECT status FROM held
        """,
        trigger_id,
    )
    return status
