"""Triggers with their watchers. Never the kwargs."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, any_, case, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.states import ShownTriggerStatus, TriggerStatus
from app.store.listings.paging import Page, Paging, read_page
from app.store.tables import asset, asset_watcher, job, task_instance, trigger

_SHOWN = (
    "id",
    "classpath",
    "queue",
    "team_name",
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


async def list_triggers(
    connection: AsyncConnection, paging: Paging, *, lease: float, status: ShownTriggerStatus | None = None
) -> Page:
    """Triggers of watchers and of deferred tasks. ``lease`` (in seconds) is how long a silent triggerer counts."""
    shown = _shown_status(lease)
    statement = _shown(shown)
    if status is not None:
        statement = statement.where(shown == status.value)
    page = await read_page(
        connection, statement, paging=paging, columns=_ORDER, default=[trigger.c.id], tie=trigger.c.id
    )
    watchers = await _watchers(connection, [row["id"] for row in page.rows])
    return Page(rows=[{**row, "watchers": watchers[row["id"]]} for row in page.rows], total=page.total)


async def read_trigger(connection: AsyncConnection, trigger_id: int, *, lease: float) -> dict[str, Any] | None:
    """One trigger as :func:`list_triggers` shows it."""
    statement = _shown(_shown_status(lease)).where(trigger.c.id == trigger_id)
    row = (await connection.execute(statement)).mappings().one_or_none()
    if row is None:
        return None
    return {**row, "watchers": (await _watchers(connection, [trigger_id]))[trigger_id]}


def _shown(status: ColumnElement[str]) -> Select[Any]:
    return select(
        *(trigger.c[name] for name in _SHOWN if name != "status"),
        status.label("status"),
        trigger.c.owner_id.label("triggerer_id"),
        task_instance.c.dag_id,
        task_instance.c.run_id,
        task_instance.c.task_id,
    ).outerjoin(task_instance, task_instance.c.id == trigger.c.task_instance_id)


def _shown_status(lease: float) -> ColumnElement[str]:
    """The state, or that it waits for a triggerer that is not there (the rule of ``app.store.shares``)."""
    heard_of = func.greatest(job.c.latest_heartbeat, func.pg_postmaster_start_time())
    served = (
        select(job.c.id)
        .where(
            job.c.job_type == "triggerer",
            job.c.ended_at.is_(None),
            heard_of >= func.clock_timestamp() - literal(timedelta(seconds=lease)),
            job.c.team_name.is_not_distinct_from(trigger.c.team_name),
            or_(
                job.c.queues.is_(None) & trigger.c.queue.is_(None),
                job.c.queues.is_not(None) & (trigger.c.queue == any_(job.c.queues)),
            ),
        )
        .correlate(trigger)
        .exists()
    )
    waits = (trigger.c.status == TriggerStatus.UNASSIGNED.value) & trigger.c.wanted
    return case((waits & ~served, ShownTriggerStatus.UNSERVED.value), else_=trigger.c.status)


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
