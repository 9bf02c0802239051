"""Triggers with their watchers. Never the kwargs."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.listings.paging import Page, Paging, read_page
from app.store.tables import asset, asset_watcher, task_instance, trigger

_SHOWN = (
    "id",
    "classpath",
    "queue",
    "created_date",
    "status",
    "wanted",
    "restarts",
    "start_count",
    "events",
    "duplicates",
    "refused",
    "last_event_at",
    "last_error",
    "last_error_at",
    "consecutive_errors",
    "next_attempt_at",
    "lag",
    "lag_at",
    "degraded_reason",
    "degraded_since",
    "throttled_reason",
    "throttled_since",
)
_ORDER: dict[str, ColumnElement[Any]] = {name: trigger.c[name] for name in _SHOWN}


async def list_triggers(connection: AsyncConnection, paging: Paging, *, status: str | None = None) -> Page:
    """Triggers of watchers and of deferred tasks."""
    statement = _shown()
    if status is not None:
        statement = statement.where(trigger.c.status == status)
    page = await read_page(
        connection, statement, paging=paging, columns=_ORDER, default=[trigger.c.id], tie=trigger.c.id
    )
    watchers = await _watchers(connection, [row["id"] for row in page.rows])
    return Page(rows=[{**row, "watchers": watchers[row["id"]]} for row in page.rows], total=page.total)


async def read_trigger(connection: AsyncConnection, trigger_id: int) -> dict[str, Any] | None:
    """One trigger as :func:`list_triggers` shows it."""
    row = (await connection.execute(_shown().where(trigger.c.id == trigger_id))).mappings().one_or_none()
    if row is None:
        return None
    return {**row, "watchers": (await _watchers(connection, [trigger_id]))[trigger_id]}


def _shown() -> Select[Any]:
    return select(
        *(trigger.c[name] for name in _SHOWN),
        trigger.c.owner_id.label("triggerer_id"),
        task_instance.c.dag_id,
        task_instance.c.run_id,
        task_instance.c.task_id,
    ).outerjoin(task_instance, task_instance.c.id == trigger.c.task_instance_id)


async def _watchers(connection: AsyncConnection, ids: list[int]) -> dict[int, list[dict[str, Any]]]:
    statement = (
        select(asset_watcher.c.trigger_id, asset_watcher.c.name, asset.c.id, asset.c.name.label("asset_name"))
        .join(asset, asset.c.id == asset_watcher.c.asset_id)
        .where(asset_watcher.c.trigger_id.in_(ids))
        .order_by(asset_watcher.c.id)
    )
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in (await connection.execute(statement)).mappings():
        found[row["trigger_id"]].append({"name": row["name"], "asset_id": row["id"], "asset_name": row["asset_name"]})
    return found
