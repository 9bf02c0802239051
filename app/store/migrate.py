"""Bring a database to the schema of this version, or say that it is not there.

The steps lie in ``_migrations`` beside this module once installed as a package, in ``migrations`` at the repository's
root otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.kernel.errors import WrongSchema
from app.store.errors import CONNECT_ERRORS, translate_connecting

if TYPE_CHECKING:
    from alembic.config import Config

#: Advisory lock held while migrating.
LOCK = 7302_7302
CONNECT_TIMEOUT = 10.0


def script_location() -> Path:
    """The folder with ``env.py`` and ``versions``."""
    packaged = Path(__file__).with_name("_migrations")
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent.parent / "migrations"


def needed_revision() -> str:
    """The revision this version works with: the last of the steps, which are numbered in their order."""
    return _revisions()[-1]


def _revisions() -> list[str]:
    """All revisions, oldest first, by the names of their files. Every process asks at its start: alembic, which would
    read each step, takes a second to import."""
    found = sorted(path.name.partition("_")[0] for path in script_location().glob("versions/[0-9]*_*.py"))
    assert found, "the package lacks its migrations"
    return found


async def upgrade(dsn: str, revision: str = "head") -> str:
    """Migrate up to ``revision``; returns the revision reached. Does nothing if the database is there already.

    All or nothing, under a lock. Raises :class:`WrongSchema` if the database is ahead of this version,
    :class:`app.store.errors.DatabaseUnavailable` if it cannot be reached, :class:`app.store.errors.DatabaseRefused` if
    it lets us not in or not create tables.
    """
    found = await current_revision(dsn)
    if found is not None:
        _refuse_unknown(found)
    from alembic import command

    await _run(dsn, lambda config: command.upgrade(config, revision))
    return await current_revision(dsn) or "none"


async def downgrade(dsn: str, revision: str) -> None:
    """Migrate down to ``revision`` (``base`` removes everything). For development; data of later steps is lost."""
    from alembic import command

    await _run(dsn, lambda config: command.downgrade(config, revision))


async def check(dsn: str) -> None:
    """Raise :class:`WrongSchema`, naming the remedy, unless the database has exactly the schema of this version."""
    found, needed = await current_revision(dsn), needed_revision()
    if found == needed:
        return
    if found is not None:
        _refuse_unknown(found)
    raise WrongSchema(found=found or "none", needed=needed)


async def current_revision(dsn: str) -> str | None:
    """The revision the database is at; None if it was never migrated."""
    try:
        connection = await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT)
        try:
            if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
                return None
            found: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
            return found
        finally:
            await connection.close()
    except CONNECT_ERRORS as error:
        raise translate_connecting(error) from error


def open_engine(dsn: str) -> AsyncEngine:
    """An engine without a pool on ``dsn``, for one migration."""

    async def connect(*_: Any, **__: Any) -> Any:
        return await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT)

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool, hide_parameters=True)


async def _run(dsn: str, step: Any) -> None:
    config = _config()

    def run(connection: Connection) -> None:
        config.attributes["connection"] = connection
        step(config)

    engine = open_engine(dsn)
    try:
        async with engine.begin() as connection:
            # Not in env.py alone: alembic keeps its context in the process, so two on one loop must not mix.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            await connection.run_sync(run)
    except (OSError, DBAPIError) as error:
        raise translate_connecting(error) from error
    finally:
        await engine.dispose()


def _refuse_unknown(found: str) -> None:
    if found not in _revisions():
        raise WrongSchema(
            f"The database is at schema revision {found}, which this version ({needed_revision()}) does not know: it "
            "was migrated by a later one. Run that version, or restore the backup made before."
        )


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
