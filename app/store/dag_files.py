"""Statements on pipeline files."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.expressions import among
from app.store.tables import dag, dag_file


async def upsert_file(
    connection: AsyncConnection, file_path: str, *, bundle_digest: str | None, duration: float
) -> None:
    """Note that a file was read just now. Without ``bundle_digest`` (it did not load) the last good one is kept."""
    row = insert(dag_file).values(
        path=file_path, bundle_digest=bundle_digest, last_parsed_at=func.now(), parse_duration=duration
    )
    new = row.excluded
    await connection.execute(
        row.on_conflict_do_update(
            index_elements=[dag_file.c.path],
            set_={
                "bundle_digest": func.coalesce(new.bundle_digest, dag_file.c.bundle_digest),
                "last_parsed_at": new.last_parsed_at,
                "parse_duration": new.parse_duration,
                "missing_since": None,
            },
        )
    )


async def read_paths(connection: AsyncConnection) -> list[tuple[str, bool]]:
    """The files known, each with whether it is missing."""
    statement = select(dag_file.c.path, dag_file.c.missing_since.is_not(None)).order_by(dag_file.c.path)
    return [(path, missing) for path, missing in await connection.execute(statement)]


async def is_missing(connection: AsyncConnection, file_path: str) -> bool:
    """Whether the file is known and missing."""
    statement = select(dag_file.c.path).where(dag_file.c.path == file_path, dag_file.c.missing_since.is_not(None))
    return (await connection.execute(statement)).first() is not None


async def mark_missing(connection: AsyncConnection, paths: Collection[str]) -> list[str]:
    """Note that the files vanished just now; those not noted before."""
    statement = (
        update(dag_file)
        .where(among(dag_file.c.path, paths), dag_file.c.missing_since.is_(None))
        .values(missing_since=func.now())
        .returning(dag_file.c.path)
    )
    return list((await connection.execute(statement)).scalars())


async def mark_present(connection: AsyncConnection, paths: Collection[str]) -> None:
    """Note that missing files are there again."""
    await connection.execute(update(dag_file).where(among(dag_file.c.path, paths)).values(missing_since=None))


async def delete_retired(connection: AsyncConnection) -> list[str]:
    """Forget missing files that no active DAG comes from any more."""
    still = select(dag.c.dag_id).where(dag.c.file_path == dag_file.c.path, dag.c.is_active).exists()
    statement = delete(dag_file).where(dag_file.c.missing_since.is_not(None), ~still).returning(dag_file.c.path)
    return list((await connection.execute(statement)).scalars())
