"""Statements on DAGs, their versions and warnings.

Whoever changes declarations (a file's content, retirement, pause) takes locks in this order, which is also that of the
transaction that stores events: :func:`lock_declarations`, then DAG rows by dag_id, then trigger rows by id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.specs import DagSpec
from app.domain.states import RunType
from app.store.expressions import among
from app.store.tables import dag, dag_run, dag_version, dag_warning

#: Advisory lock of the transaction that changes declarations: they are rare and short, so one at a time.
DECLARATION_LOCK = (7302, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDag:
    """A DAG with its current version. ``is_missing`` is true in the grace period of a DAG or file that vanished."""

    dag_id: str
    file_path: str
    is_active: bool
    is_paused: bool
    is_missing: bool
    max_active_runs: int
    max_active_tasks: int
    version_number: int
    spec_digest: str
    bundle_digest: str
    spec: DagSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A version to append. ``spec`` must not contain the arguments of triggers."""

    dag_id: str
    number: int
    bundle_digest: str
    spec_digest: str
    spec: DagSpec


async def lock_declarations(connection: AsyncConnection) -> None:
    """Wait until no other transaction changes declarations; held until the end of this one."""
    await connection.execute(select(func.pg_advisory_xact_lock(*DECLARATION_LOCK)))


async def read_dags(connection: AsyncConnection, dag_ids: Collection[str], *, file_path: str = "") -> list[StoredDag]:
    """The DAGs named, and the active ones of the file."""
    of_file = and_(dag.c.file_path == file_path, dag.c.is_active)
    statement = (
        select(
            dag.c.dag_id,
            dag.c.file_path,
            dag.c.is_active,
            dag.c.is_paused,
            dag.c.missing_since,
            dag.c.max_active_runs,
            dag.c.max_active_tasks,
            dag_version.c.version_number,
            dag_version.c.spec_digest,
            dag_version.c.bundle_digest,
            dag_version.c.spec,
        )
        .join(dag_version, dag_version.c.id == dag.c.current_version_id)
        .where(or_(among(dag.c.dag_id, dag_ids), of_file))
        .order_by(dag.c.dag_id)
    )
    return [
        StoredDag(
            dag_id=row.dag_id,
            file_path=row.file_path,
            is_active=row.is_active,
            is_paused=row.is_paused,
            is_missing=row.missing_since is not None,
            max_active_runs=row.max_active_runs,
            max_active_tasks=row.max_active_tasks,
            version_number=row.version_number,
            spec_digest=row.spec_digest,
            bundle_digest=row.bundle_digest,
            spec=msgspec.convert(row.spec, DagSpec),
        )
        for row in await connection.execute(statement)
    ]


async def lock_dags(connection: AsyncConnection, dag_ids: Collection[str]) -> None:
    """Lock the rows in the order of dag_id, as every other transaction does that touches several."""
    statement = (
        select(dag.c.dag_id).where(among(dag.c.dag_id, dag_ids)).order_by(dag.c.dag_id).with_for_update(key_share=True)
    )
    await connection.execute(statement)


async def insert_dags(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert active DAGs, still without a version. Rows: dag_id, file_path, is_paused and both limits."""
    statement = insert(dag).values(is_active=True, updated_at=func.now(), last_parsed_at=func.now())
    await connection.execute(statement, list(rows))


async def update_dags(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """The DAGs are declared by ``file_path`` with these limits, active and not missing."""
    statement = (
        update(dag)
        .where(dag.c.dag_id == bindparam("of_dag_id"))
        .values(
            file_path=bindparam("file_path"),
            max_active_runs=bindparam("max_active_runs"),
            max_active_tasks=bindparam("max_active_tasks"),
            is_active=True,
            missing_since=None,
            updated_at=func.now(),
            last_parsed_at=func.now(),
        )
    )
    await connection.execute(statement, [{"of_dag_id": row["dag_id"], **_without(row, "dag_id")} for row in rows])


async def set_next_run(
    connection: AsyncConnection,
    dag_id: str,
    *,
    next_run_at: datetime | None,
    logical_date: datetime | None,
    missed_before: datetime | None = None,
) -> None:
    """When the time schedule of the DAG makes its next run; None for a DAG that has no such time.

    With ``missed_before`` only if what is planned so far lies before that moment.
    """
    statement = (
        update(dag).where(dag.c.dag_id == dag_id).values(next_run_at=next_run_at, next_logical_date=logical_date)
    )
    if missed_before is not None:
        statement = statement.where(dag.c.next_run_at < missed_before)
    await connection.execute(statement)


async def read_last_logical_date(connection: AsyncConnection, dag_id: str) -> datetime | None:
    """The logical date of the DAG's last run by its time schedule."""
    statement = select(func.max(dag_run.c.logical_date)).where(
        dag_run.c.dag_id == dag_id, dag_run.c.run_type == RunType.SCHEDULED
    )
    moment: datetime | None = (await connection.execute(statement)).scalar_one()
    return moment


async def append_versions(connection: AsyncConnection, versions: Sequence[NewVersion]) -> None:
    """Append versions."""
    rows = [
        {
            "dag_id": version.dag_id,
            "version_number": version.number,
            "bundle_digest": version.bundle_digest,
            "spec_digest": version.spec_digest,
            "spec": json.loads(msgspec.json.encode(version.spec)),
        }
        for version in versions
    ]
    await connection.execute(insert(dag_version), rows)


async def point_to_newest(connection: AsyncConnection, dag_ids: Collection[str]) -> None:
    """Make the newest version of each DAG its current one, and have its demand looked at again."""
    newest = (
        select(dag_version.c.id)
        .where(dag_version.c.dag_id == dag.c.dag_id)
        .order_by(dag_version.c.version_number.desc())
        .limit(1)
        .scalar_subquery()
    )
    statement = (
        update(dag)
        .where(among(dag.c.dag_id, dag_ids))
        .values(current_version_id=newest, has_demand=True, updated_at=func.now(), last_parsed_at=func.now())
    )
    await connection.execute(statement)


async def set_paused(connection: AsyncConnection, dag_id: str, *, paused: bool) -> bool:
    """Pause or unpause; whether that was a change."""
    statement = (
        update(dag)
        .where(dag.c.dag_id == dag_id, dag.c.is_paused != paused)
        .values(is_paused=paused, has_demand=True, updated_at=func.now())
        .returning(dag.c.dag_id)
    )
    return (await connection.execute(statement)).first() is not None


async def is_known(connection: AsyncConnection, dag_id: str) -> bool:
    """Whether there is such a DAG, active or retired."""
    return (await connection.execute(select(dag.c.dag_id).where(dag.c.dag_id == dag_id))).first() is not None


async def mark_missing(connection: AsyncConnection, dag_ids: Collection[str]) -> list[str]:
    """Start the grace period of active DAGs; those for which it starts now."""
    statement = (
        update(dag)
        .where(among(dag.c.dag_id, dag_ids), dag.c.is_active, dag.c.missing_since.is_(None))
        .values(missing_since=func.now())
        .returning(dag.c.dag_id)
    )
    return list((await connection.execute(statement)).scalars())


async def clear_missing(connection: AsyncConnection, dag_ids: Collection[str]) -> None:
    """End the grace period of DAGs that came back within it."""
    statement = (
        update(dag).where(among(dag.c.dag_id, dag_ids), dag.c.missing_since.is_not(None)).values(missing_since=None)
    )
    await connection.execute(statement)


async def read_of_files(connection: AsyncConnection, paths: Collection[str]) -> list[str]:
    """The active DAGs of the files."""
    statement = select(dag.c.dag_id).where(among(dag.c.file_path, paths), dag.c.is_active).order_by(dag.c.dag_id)
    return list((await connection.execute(statement)).scalars())


async def read_overdue(connection: AsyncConnection, *, grace: timedelta) -> list[tuple[str, str]]:
    """(file path, dag_id) of the active DAGs that have been missing for at least ``grace``."""
    statement = (
        select(dag.c.file_path, dag.c.dag_id)
        .where(dag.c.is_active, dag.c.missing_since <= func.clock_timestamp() - grace)
        .order_by(dag.c.file_path, dag.c.dag_id)
    )
    return [(row.file_path, row.dag_id) for row in await connection.execute(statement)]


async def retire(connection: AsyncConnection, dag_ids: Collection[str]) -> None:
    """The DAGs make no runs any more. Their history stays."""
    statement = (
        update(dag)
        .where(among(dag.c.dag_id, dag_ids), dag.c.is_active)
        .values(is_active=False, missing_since=None, next_run_at=None, next_logical_date=None, updated_at=func.now())
    )
    await connection.execute(statement)


async def set_warnings(connection: AsyncConnection, messages: Mapping[str, str], *, warning_type: str) -> bool:
    """Record a warning of each DAG in place of the one of the same type before; whether anything changed."""
    rows = [
        {"dag_id": dag_id, "warning_type": warning_type, "message": message}
        for dag_id, message in sorted(messages.items())
    ]
    row = upsert(dag_warning).values(rows)
    statement = row.on_conflict_do_update(
        index_elements=[dag_warning.c.dag_id, dag_warning.c.warning_type],
        set_={"message": row.excluded.message, "timestamp": func.now()},
        where=dag_warning.c.message != row.excluded.message,
    ).returning(dag_warning.c.dag_id)
    return bool(rows) and bool((await connection.execute(statement)).all())


async def delete_warnings(connection: AsyncConnection, dag_ids: Collection[str], *, warning_type: str) -> None:
    """Forget the warnings of this type of the DAGs."""
    statement = delete(dag_warning).where(
        among(dag_warning.c.dag_id, dag_ids), dag_warning.c.warning_type == warning_type
    )
    await connection.execute(statement)


def _without(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
