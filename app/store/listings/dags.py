"""DAGs, import errors and warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.listings.paging import Page, Paging, matches, read_page
from app.store.tables import bundle, dag, dag_version, dag_warning, import_error

_ORDER: dict[str, ColumnElement[Any]] = {
    "dag_id": dag.c.dag_id,
    "dag_display_name": dag.c.dag_id,
    "is_paused": dag.c.is_paused,
    "next_dagrun_run_after": dag.c.next_run_at,
    "created_at": dag.c.created_at,
}


def _dags() -> Select[Any]:
    has_errors = exists().where(import_error.c.filename == dag.c.file_path)
    return (
        select(
            dag.c.dag_id,
            dag.c.file_path,
            dag.c.is_paused,
            dag.c.is_active,
            dag.c.max_active_runs,
            dag.c.max_active_tasks,
            dag.c.next_run_at,
            dag.c.next_logical_date,
            dag.c.created_at,
            dag.c.updated_at,
            dag.c.last_parsed_at,
            dag.c.current_version_id,
            has_errors.label("has_import_errors"),
            dag_version.c.version_number,
            dag_version.c.bundle_digest,
            dag_version.c.spec,
            dag_version.c.created_at.label("version_created_at"),
            bundle.c.entry,
        )
        .join(dag_version, dag_version.c.id == dag.c.current_version_id, isouter=True)
        .join(bundle, bundle.c.digest == dag_version.c.bundle_digest, isouter=True)
    )


async def list_dags(
    connection: AsyncConnection,
    paging: Paging,
    *,
    dag_id_pattern: str | None = None,
    paused: bool | None = None,
    only_active: bool = True,
) -> Page:
    """DAGs with the declaration (``spec``) of their current version and their warnings."""
    statement = _dags()
    if dag_id_pattern:
        statement = statement.where(matches(dag.c.dag_id, dag_id_pattern))
    if paused is not None:
        statement = statement.where(dag.c.is_paused == paused)
    if only_active:
        statement = statement.where(dag.c.is_active)
    page = await read_page(
        connection, statement, paging=paging, columns=_ORDER, default=[dag.c.dag_id], tie=dag.c.dag_id
    )
    return Page(rows=await _with_warnings(connection, page.rows), total=page.total)


async def read_dag(connection: AsyncConnection, dag_id: str) -> Mapping[str, Any] | None:
    """One DAG as in :func:`list_dags`, retired or not."""
    row = (await connection.execute(_dags().where(dag.c.dag_id == dag_id))).mappings().first()
    return (await _with_warnings(connection, [dict(row)]))[0] if row else None


async def _with_warnings(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    statement = select(dag_warning).where(dag_warning.c.dag_id.in_([row["dag_id"] for row in rows]))
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for warning in (await connection.execute(statement.order_by(dag_warning.c.warning_type))).mappings():
        found[warning["dag_id"]].append({key: warning[key] for key in ("warning_type", "message", "timestamp")})
    return [{**row, "warnings": found[row["dag_id"]]} for row in rows]


async def list_import_errors(
    connection: AsyncConnection, paging: Paging, *, filename_pattern: str | None = None
) -> Page:
    """Files that could not be loaded, with the reason."""
    columns = {
        "id": import_error.c.id,
        "import_error_id": import_error.c.id,
        "filename": import_error.c.filename,
        "timestamp": import_error.c.timestamp,
    }
    statement = select(import_error)
    if filename_pattern:
        statement = statement.where(matches(import_error.c.filename, filename_pattern))
    return await read_page(
        connection, statement, paging=paging, columns=columns, default=[import_error.c.id], tie=import_error.c.id
    )


async def read_import_error(connection: AsyncConnection, error_id: int) -> Mapping[str, Any] | None:
    """One import error."""
    row = (await connection.execute(select(import_error).where(import_error.c.id == error_id))).mappings().first()
    return dict(row) if row else None
