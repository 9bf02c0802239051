"""DAG runs, their task instances and XComs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.listings.paging import Page, Paging, matches, read_page
from app.store.tables import dag_run, dag_version, task_instance, trigger, xcom

_RUN_ORDER: dict[str, ColumnElement[Any]] = {
    "id": dag_run.c.id,
    "dag_id": dag_run.c.dag_id,
    "run_id": dag_run.c.run_id,
    "dag_run_id": dag_run.c.run_id,
    "state": dag_run.c.state,
    "run_type": dag_run.c.run_type,
    "logical_date": dag_run.c.logical_date,
    "run_after": dag_run.c.run_after,
    "queued_at": dag_run.c.queued_at,
    "start_date": dag_run.c.start_date,
    "end_date": dag_run.c.end_date,
}
_TASK_ORDER: dict[str, ColumnElement[Any]] = {
    "id": task_instance.c.id,
    "task_id": task_instance.c.task_id,
    "state": task_instance.c.state,
    "map_index": task_instance.c.map_index,
    "try_number": task_instance.c.try_number,
    "start_date": task_instance.c.start_date,
    "end_date": task_instance.c.end_date,
    "queued_when": task_instance.c.queued_at,
    "priority_weight": task_instance.c.priority_weight,
}


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def _runs() -> Select[Any]:
    return select(
        dag_run,
        dag_version.c.version_number,
        dag_version.c.bundle_digest,
        dag_version.c.created_at.label("version_created_at"),
    ).join(dag_version, dag_version.c.id == dag_run.c.dag_version_id)


async def list_runs(
    connection: AsyncConnection,
    paging: Paging,
    *,
    dag_id: str | None = None,
    states: Sequence[str] = (),
    run_types: Sequence[str] = (),
    run_id_pattern: str | None = None,
    bounds: Sequence[tuple[str, str, datetime]] = (),
) -> Page:
    """Runs, oldest first by default. ``bounds`` are a moment of the run, ``gt gte lt lte``, and the bound."""
    statement = _runs()
    if dag_id is not None:
        statement = statement.where(dag_run.c.dag_id == dag_id)
    if states:
        statement = statement.where(dag_run.c.state.in_(states))
    if run_types:
        statement = statement.where(dag_run.c.run_type.in_(run_types))
    if run_id_pattern:
        statement = statement.where(matches(dag_run.c.run_id, run_id_pattern))
    for name, comparison, bound in bounds:
        statement = statement.where(_COMPARISONS[comparison](dag_run.c[name], bound))
    return await read_page(
        connection, statement, paging=paging, columns=_RUN_ORDER, default=[dag_run.c.id], tie=dag_run.c.id
    )


async def read_run(connection: AsyncConnection, dag_id: str, run_id: str) -> Mapping[str, Any] | None:
    """One run."""
    statement = _runs().where(dag_run.c.dag_id == dag_id, dag_run.c.run_id == run_id)
    row = (await connection.execute(statement)).mappings().first()
    return dict(row) if row else None


def _tasks() -> Select[Any]:
    run = (dag_run.c.run_after, dag_run.c.logical_date, dag_version.c.version_number, dag_version.c.bundle_digest)
    return (
        select(
            task_instance,
            *run,
            dag_version.c.id.label("dag_version_id"),
            dag_version.c.created_at.label("version_created_at"),
            trigger.c.id.label("trigger_id"),
            trigger.c.classpath.label("trigger_classpath"),
            trigger.c.created_date.label("trigger_created_date"),
            trigger.c.queue.label("trigger_queue"),
            trigger.c.owner_id.label("triggerer_id"),
        )
        .join(dag_run, dag_run.c.id == task_instance.c.dag_run_id)
        .join(dag_version, dag_version.c.id == dag_run.c.dag_version_id)
        .join(trigger, trigger.c.task_instance_id == task_instance.c.id, isouter=True)
    )


async def list_tasks(
    connection: AsyncConnection,
    paging: Paging,
    *,
    dag_id: str | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    states: Sequence[str] = (),
) -> Page:
    """Task instances with their run's moments and, while deferred, their trigger."""
    statement = _tasks()
    for value, column in (
        (dag_id, task_instance.c.dag_id),
        (run_id, task_instance.c.run_id),
        (task_id, task_instance.c.task_id),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if states:
        statement = statement.where(task_instance.c.state.in_(states))
    return await read_page(
        connection,
        statement,
        paging=paging,
        columns=_TASK_ORDER,
        default=[task_instance.c.id],
        tie=task_instance.c.id,
    )


async def read_task(
    connection: AsyncConnection, dag_id: str, run_id: str, *, task_id: str, map_index: int = -1
) -> Mapping[str, Any] | None:
    """One task instance."""
    statement = _tasks().where(
        task_instance.c.dag_id == dag_id,
        task_instance.c.run_id == run_id,
        task_instance.c.task_id == task_id,
        task_instance.c.map_index == map_index,
    )
    row = (await connection.execute(statement)).mappings().first()
    return dict(row) if row else None


async def list_xcoms(
    connection: AsyncConnection, paging: Paging, *, dag_run_id: int, task_id: str, map_index: int = -1
) -> Page:
    """XCom entries of a task instance; ``value`` is the canonical text."""
    statement = select(xcom).where(
        xcom.c.dag_run_id == dag_run_id, xcom.c.task_id == task_id, xcom.c.map_index == map_index
    )
    columns = {"key": xcom.c.key, "timestamp": xcom.c.timestamp}
    return await read_page(connection, statement, paging=paging, columns=columns, default=[xcom.c.key], tie=xcom.c.key)


async def read_xcom(
    connection: AsyncConnection, *, dag_run_id: int, task_id: str, map_index: int, key: str
) -> Mapping[str, Any] | None:
    """One XCom entry."""
    statement = select(xcom).where(
        xcom.c.dag_run_id == dag_run_id,
        xcom.c.task_id == task_id,
        xcom.c.map_index == map_index,
        xcom.c.key == key,
    )
    row = (await connection.execute(statement)).mappings().first()
    return dict(row) if row else None
