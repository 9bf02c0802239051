"""Assets, with who uses them and what watches them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.listings.paging import Page, Paging, matches, read_page, starts_with
from app.store.tables import asset, asset_event, asset_reference, asset_watcher, dag, trigger

_COLUMNS = (
    asset.c.id,
    asset.c.name,
    asset.c.uri,
    asset.c.group_name.label("group"),
    asset.c.extra,
    asset.c.is_active,
    asset.c.created_at,
    asset.c.updated_at,
)
_ORDER: dict[str, ColumnElement[Any]] = {
    "id": asset.c.id,
    "name": asset.c.name,
    "uri": asset.c.uri,
    "created_at": asset.c.created_at,
    "updated_at": asset.c.updated_at,
}


async def list_assets(
    connection: AsyncConnection,
    paging: Paging,
    *,
    name_pattern: str | None = None,
    name_prefix_pattern: str | None = None,
    uri_pattern: str | None = None,
    uri_prefix_pattern: str | None = None,
    dag_ids: Sequence[str] = (),
    only_active: bool = True,
) -> Page:
    """Assets with their references and watchers (see :func:`_with_uses`)."""
    statement = select(*_COLUMNS)
    for pattern, column in ((name_pattern, asset.c.name), (uri_pattern, asset.c.uri)):
        if pattern:
            statement = statement.where(matches(column, pattern))
    for prefix, column in ((name_prefix_pattern, asset.c.name), (uri_prefix_pattern, asset.c.uri)):
        if prefix:
            statement = statement.where(starts_with(column, prefix))
    if dag_ids:
        users = select(asset_reference.c.asset_id).where(asset_reference.c.dag_id.in_(dag_ids))
        statement = statement.where(asset.c.id.in_(users))
    if only_active:
        statement = statement.where(asset.c.is_active)
    page = await read_page(connection, statement, paging=paging, columns=_ORDER, default=[asset.c.id], tie=asset.c.id)
    return Page(rows=await _with_uses(connection, page.rows), total=page.total)


async def read_asset(connection: AsyncConnection, asset_id: int) -> Mapping[str, Any] | None:
    """One asset as in :func:`list_assets`, active or not."""
    row = (await connection.execute(select(*_COLUMNS).where(asset.c.id == asset_id))).mappings().first()
    return (await _with_uses(connection, [dict(row)]))[0] if row else None


async def find_assets(
    connection: AsyncConnection, *, asset_id: int | None = None, name: str | None = None, uri: str | None = None
) -> Sequence[Mapping[str, Any]]:
    """Assets that fit all that is given, active ones first."""
    statement = select(*_COLUMNS).order_by(asset.c.is_active.desc(), asset.c.id)
    for value, column in ((asset_id, asset.c.id), (name, asset.c.name), (uri, asset.c.uri)):
        if value is not None:
            statement = statement.where(column == value)
    return [dict(row) for row in (await connection.execute(statement)).mappings()]


async def _with_uses(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add ``scheduled_dags``, ``producing_tasks``, ``consuming_tasks``, ``watchers`` and ``last_asset_event``."""
    ids = [row["id"] for row in rows]
    references = await _references(connection, ids)
    watchers = await _watchers(connection, ids)
    latest = await _latest_events(connection, ids)
    return [
        {
            **row,
            "scheduled_dags": references[row["id"], "schedule"],
            "producing_tasks": references[row["id"], "outlet"],
            "consuming_tasks": references[row["id"], "inlet"],
            "aliases": [],
            "watchers": watchers[row["id"]],
            "last_asset_event": latest.get(row["id"]),
        }
        for row in rows
    ]


async def _references(connection: AsyncConnection, ids: Sequence[int]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    statement = (
        select(asset_reference)
        .join(dag, dag.c.dag_id == asset_reference.c.dag_id)
        .where(asset_reference.c.asset_id.in_(ids), dag.c.is_active)
        .order_by(asset_reference.c.dag_id, asset_reference.c.task_id)
    )
    found: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in (await connection.execute(statement)).mappings():
        entry = {"dag_id": row["dag_id"], "created_at": row["created_at"], "updated_at": row["created_at"]}
        if row["task_id"] is not None:
            entry["task_id"] = row["task_id"]
        found[row["asset_id"], row["kind"]].append(entry)
    return found


async def _watchers(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    statement = (
        select(asset_watcher.c.asset_id, asset_watcher.c.name, asset_watcher.c.trigger_id, trigger.c.created_date)
        .join(trigger, trigger.c.id == asset_watcher.c.trigger_id)
        .where(asset_watcher.c.asset_id.in_(ids))
        .order_by(asset_watcher.c.name, asset_watcher.c.id)
    )
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in (await connection.execute(statement)).mappings():
        found[row["asset_id"]].append({key: row[key] for key in ("name", "trigger_id", "created_date")})
    return found


async def _latest_events(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """By id, not by time: two events may carry the same moment."""
    newest = (
        select(asset_event.c.asset_id, func.max(asset_event.c.id).label("id"))
        .where(asset_event.c.asset_id.in_(ids))
        .group_by(asset_event.c.asset_id)
        .subquery()
    )
    statement = select(asset_event.c.asset_id, asset_event.c.id, asset_event.c.timestamp).join(
        newest, newest.c.id == asset_event.c.id
    )
    rows = (await connection.execute(statement)).mappings()
    return {row["asset_id"]: {"id": row["id"], "timestamp": row["timestamp"]} for row in rows}
