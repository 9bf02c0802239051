"""What triggers say of their sources, stored by their owner."""

from __future__ import annotations

from collections.abc import Sequence

from app.store import trigger_sources as statements
from app.store.database import Database, HotConnection


async def record_lags(database: Database, *, owner_id: int, lags: Sequence[tuple[int, int, int | None]]) -> None:
    """Store how much waits at the sources of the ``(id, epoch)`` triggers that are still ours; None is unknown."""
    if not lags:
        return

    async def work(hot: HotConnection) -> None:
        await statements.note_lags(hot, owner_id=owner_id, lags=lags)

    await database.retrying_hot(work)


async def record_degraded(database: Database, *, owner_id: int, trigger_id: int, epoch: int, reason: str) -> bool:
    """The source stood still and was started again. False: the trigger is no longer ours."""

    async def work(hot: HotConnection) -> bool:
        return await statements.mark_degraded(
            hot, owner_id=owner_id, trigger_id=trigger_id, epoch=epoch, reason=reason[:2000]
        )

    return await database.retrying_hot(work)
