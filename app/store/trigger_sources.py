"""Statements about what triggers say of their sources: how much waits there, and which stand still."""

from __future__ import annotations

from collections.abc import Sequence

from app.store.database import HotConnection


async def note_lags(hot: HotConnection, *, owner_id: int, lags: Sequence[tuple[int, int, int | None]]) -> None:
    """Record ``(id, epoch, lag)`` of triggers that are still this owner's; None is unknown.

    A source at which nothing waits is not degraded any more.
    """
    await hot.execute(
        """
        WITH said AS (
            SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS s(id, epoch, lag)
        ), held AS MATERIALIZED (
            SELECT t.id, s.lag FROM trigger t JOIN said s ON s.id = t.id AND s.epoch = t.epoch
            WHERE t.owner_id = $1::bigint ORDER BY t.id FOR NO KEY UPDATE OF t
        )
        UPDATE trigger t
        SET lag = h.lag, lag_at = now(),
            degraded_reason = CASE WHEN h.lag = 0 THEN NULL ELSE t.degraded_reason END,
            degraded_since = CASE WHEN h.lag = 0 THEN NULL ELSE t.degraded_since END
        FROM held h WHERE h.id = t.id
        """,
        owner_id,
        [each[0] for each in lags],
        [each[1] for each in lags],
        [each[2] for each in lags],
    )


async def mark_degraded(hot: HotConnection, *, owner_id: int, trigger_id: int, epoch: int, reason: str) -> bool:
    """Mark the source of a trigger as degraded. False: no longer this owner's. What it delivers unmarks it."""
    found = await hot.fetchval(
        """
        UPDATE trigger SET degraded_reason = $4::text, degraded_since = coalesce(degraded_since, now())
        WHERE id = $2::bigint AND owner_id = $1::bigint AND epoch = $3::bigint
        RETURNING id
        """,
        owner_id,
        trigger_id,
        epoch,
        reason,
    )
    return found is not None
