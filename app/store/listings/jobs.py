"""Processes of the service, living and ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.listings.paging import Page, Paging, read_page
from app.store.tables import job

_SHOWN = (
    "id", "job_type", "hostname", "pid", "capacity", "queues", "team_name", "started_at", "latest_heartbeat",
    "latest_progress", "ended_at",
)  # fmt: skip
_ORDER: dict[str, ColumnElement[Any]] = {name: job.c[name] for name in _SHOWN if name != "queues"}


async def list_jobs(
    connection: AsyncConnection, paging: Paging, *, job_type: str | None = None, is_alive: bool | None = None
) -> Page:
    """Jobs, the latest first. ``is_alive`` picks those that have not ended, as far as their rows know."""
    statement = select(*(job.c[name] for name in _SHOWN), job.c.details)
    if job_type is not None:
        statement = statement.where(job.c.job_type == job_type)
    if is_alive is not None:
        statement = statement.where(job.c.ended_at.is_(None) if is_alive else job.c.ended_at.is_not(None))
    return await read_page(
        connection, statement, paging=paging, columns=_ORDER, default=[job.c.id.desc()], tie=job.c.id
    )
