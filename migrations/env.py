"""How alembic runs our migrations: on a connection handed in by app.store.migrate, else (its own command) on the
server of TIDEGATE_DATABASE_URL. All steps of one call are one transaction under one lock, so that processes that start
together migrate one after the other."""

from __future__ import annotations

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text

from app.store.migrate import LOCK, open_engine
from app.store.tables import metadata


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
    with context.begin_transaction():
        # Before alembic reads the present revision, or two would both find work to do.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.run_migrations()


async def migrate_by_url() -> None:
    url = os.environ.get("TIDEGATE_DATABASE_URL")
    if not url:
        raise SystemExit("set TIDEGATE_DATABASE_URL to the database to migrate")
    engine = open_engine(url)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
            await connection.commit()
    finally:
        await engine.dispose()


handed_in = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif handed_in is not None:
    migrate(handed_in)
else:
    asyncio.run(migrate_by_url())
