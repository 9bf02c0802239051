"""What a running attempt asks for beyond its order and XComs: events of its inlets."""

from __future__ import annotations

from datetime import datetime

from app.domain.orders import EventValue
from app.domain.specs import AssetKey
from app.store.database import Database
from app.store.listings.assets import find_assets
from app.store.listings.events import list_events
from app.store.listings.paging import Paging

#: Most events of an inlet handed to a task at once.
INLET_LIMIT = 10_000


async def inlet_events(
    database: Database,
    asset: AssetKey,
    *,
    after: datetime | None = None,
    before: datetime | None = None,
    ascending: bool = True,
    limit: int | None = None,
) -> list[EventValue]:
    """Events of an asset by time, exclusive bounds, at most ``INLET_LIMIT``; none of an unknown asset."""
    paging = Paging(
        limit=min(limit if limit is not None else INLET_LIMIT, INLET_LIMIT),
        order_by=("timestamp",) if ascending else ("-timestamp",),
    )
    async with database.transaction() as connection:
        found = await find_assets(connection, name=asset.name, uri=asset.uri)
        if not found:
            return []
        page = await list_events(connection, paging, equal={"asset_id": found[0]["id"]}, after=after, before=before)
    return [
        EventValue(
            id=row["id"],
            asset=asset,
            extra=row["extra"],
            timestamp=row["timestamp"].isoformat(),
            source_dag_id=row["source_dag_id"],
            source_task_id=row["source_task_id"],
            source_run_id=row["source_run_id"],
            source_map_index=row["source_map_index"],
        )
        for row in page.rows
    ]
