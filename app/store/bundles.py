"""Statements on stored code."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.tables import bundle, bundle_file


async def insert_bundle(connection: AsyncConnection, digest: str, *, entry: str) -> bool:
    """Insert the version unless it is stored already; whether it was inserted."""
    statement = insert(bundle).values(digest=digest, entry=entry).on_conflict_do_nothing().returning(bundle.c.digest)
    return (await connection.execute(statement)).first() is not None


async def insert_files(connection: AsyncConnection, digest: str, sources: Mapping[str, bytes]) -> None:
    """Insert the files of a version just inserted."""
    rows = [{"bundle_digest": digest, "path": path, "content": content} for path, content in sorted(sources.items())]
    await connection.execute(insert(bundle_file), rows)


async def read_entry(connection: AsyncConnection, digest: str) -> str | None:
    """The path of the pipeline file of a version, None if there is no such version."""
    entry: str | None = (await connection.execute(select(bundle.c.entry).where(bundle.c.digest == digest))).scalar()
    return entry


async def read_files(connection: AsyncConnection, digest: str) -> dict[str, bytes]:
    """The files of a version by path; empty if there is no such version."""
    statement = select(bundle_file.c.path, bundle_file.c.content).where(bundle_file.c.bundle_digest == digest)
    return {row.path: bytes(row.content) for row in await connection.execute(statement)}
