"""Asset events with the runs they caused; demand that waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.states import DemandState
from app.store.listings.paging import Page, Paging, matches, read_page, starts_with
from app.store.tables import asset, asset_event, dag_run, dag_run_event, demand, event_body

_ORDER: dict[str, ColumnElement[Any]] = {
    "id": asset_event.c.id,
    "timestamp": asset_event.c.timestamp,
    "asset_id": asset_event.c.asset_id,
    "source_dag_id": asset_event.c.source_dag_id,
    "source_task_id": asset_event.c.source_task_id,
    "source_run_id": asset_event.c.source_run_id,
    "source_map_index": asset_event.c.source_map_index,
}
WAITING = (DemandState.PENDING, DemandState.GROUPED)


def _events() -> Select[Any]:
    return (
        select(
            asset_event.c.id,
            asset_event.c.asset_id,
            asset.c.uri,
            asset.c.name,
            asset.c.group_name.label("group"),
            event_body.c.extra,
            asset_event.c.source_task_id,
            asset_event.c.source_dag_id,
            asset_event.c.source_run_id,
            asset_event.c.source_map_index,
            asset_event.c.timestamp,
            asset_event.c.requeued_from,
        )
        .join(asset, asset.c.id == asset_event.c.asset_id)
        .join(event_body, event_body.c.id == asset_event.c.body_id)
    )


async def list_events(
    connection: AsyncConnection,
    paging: Paging,
    *,
    equal: Mapping[str, Any] | None = None,
    name_pattern: str | None = None,
    name_prefix_pattern: str | None = None,
    after: datetime | None = None,
    after_or_at: datetime | None = None,
    before: datetime | None = None,
    before_or_at: datetime | None = None,
) -> Page:
    """Events, oldest first by default. ``equal`` maps attributes of the event to the value they must have."""
    statement = _events()
    for name, value in (equal or {}).items():
        if value is not None:
            statement = statement.where(asset_event.c[name] == value)
    if name_pattern:
        statement = statement.where(matches(asset.c.name, name_pattern))
    if name_prefix_pattern:
        statement = statement.where(starts_with(asset.c.name, name_prefix_pattern))
    moment = asset_event.c.timestamp
    bounds = [
        (after, moment.__gt__),
        (after_or_at, moment.__ge__),
        (before, moment.__lt__),
        (before_or_at, moment.__le__),
    ]
    for bound, compare in bounds:
        if bound is not None:
            statement = statement.where(compare(bound))
    page = await read_page(connection, statement, paging=paging, columns=_ORDER, default=[moment], tie=asset_event.c.id)
    return Page(rows=await with_created_runs(connection, page.rows), total=page.total)


async def read_event(connection: AsyncConnection, event_id: int) -> Mapping[str, Any] | None:
    """One event as in :func:`list_events`."""
    row = (await connection.execute(_events().where(asset_event.c.id == event_id))).mappings().first()
    return (await with_created_runs(connection, [dict(row)]))[0] if row else None


async def events_of_run(connection: AsyncConnection, dag_run_id: int) -> list[dict[str, Any]]:
    """The causes of a run, in the order its DAG received them."""
    statement = (
        _events()
        .join(dag_run_event, dag_run_event.c.event_id == asset_event.c.id)
        .outerjoin(demand, (demand.c.event_id == asset_event.c.id) & (demand.c.dag_id == dag_run_event.c.dag_id))
        .where(dag_run_event.c.dag_run_id == dag_run_id)
        .order_by(demand.c.arrival, asset_event.c.id)
    )
    rows = [dict(row) for row in (await connection.execute(statement)).mappings()]
    return await with_created_runs(connection, rows)


async def with_created_runs(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add ``created_dagruns`` to each event: the runs that name it as a cause, in one query for all."""
    statement = (
        select(
            dag_run_event.c.event_id,
            dag_run_event.c.triggering,
            dag_run.c.run_id,
            dag_run.c.dag_id,
            dag_run.c.logical_date,
            dag_run.c.start_date,
            dag_run.c.end_date,
            dag_run.c.state,
            dag_run.c.data_interval_start,
            dag_run.c.data_interval_end,
        )
        .join(dag_run, dag_run.c.id == dag_run_event.c.dag_run_id)
        .where(dag_run_event.c.event_id.in_([row["id"] for row in rows]))
        .order_by(dag_run.c.id)
    )
    runs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for found in (await connection.execute(statement)).mappings():
        values = dict(found)
        runs[values.pop("event_id")].append({**values, "partition_key": None})
    return [{**row, "created_dagruns": runs[row["id"]], "partition_key": None} for row in rows]


async def queued_events(
    connection: AsyncConnection,
    *,
    dag_id: str | None = None,
    asset_id: int | None = None,
    before: datetime | None = None,
) -> list[dict[str, Any]]:
    """What waits, per DAG and asset: since when, and how many events."""
    statement = (
        select(
            demand.c.dag_id,
            demand.c.asset_id,
            func.min(demand.c.created_at).label("created_at"),
            func.count().label("events"),
        )
        .where(demand.c.state.in_(WAITING))
        .group_by(demand.c.dag_id, demand.c.asset_id)
        .order_by(demand.c.dag_id, demand.c.asset_id)
    )
    if dag_id is not None:
        statement = statement.where(demand.c.dag_id == dag_id)
    if asset_id is not None:
        statement = statement.where(demand.c.asset_id == asset_id)
    if before is not None:
        statement = statement.where(demand.c.created_at < before)
    rows = (await connection.execute(statement)).mappings()
    return [{**row, "dag_display_name": row["dag_id"]} for row in rows]
