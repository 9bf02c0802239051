"""How PostgreSQL plans the statements of one transaction."""

from __future__ import annotations

from app.store.database import HotConnection

#: From this many rows on, a plan for the arrays at hand is worth its planning time.
MANY = 10


async def plan_for_values(hot: HotConnection, *, rows: int) -> None:
    """Have large statements of this transaction planned for their values.

    A cached plan expects a handful of array elements; with hundreds it may join them in quadratic time. For a few rows
    the cached plan is right, and planning would cost more than the statement.
    """
    if rows >= MANY:
        await hot.execute("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
