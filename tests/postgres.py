"""One PostgreSQL a test process, one migrated template, one clone a test.

The server is the embedded one of the product in a temporary folder, with fsync off. It runs on an event loop of its
own that only turns while it starts and stops, so that tests may have theirs.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from app.kernel.settings import load_settings
from app.store import migrate
from app.store.embedded import EmbeddedPostgres

TEMPLATE = "tidegate_template"
#: How long connections, processes and threads of a finished test may take to be gone, in seconds.
LEAK_LIMIT = float(os.environ.get("TIDEGATE_TEST_LEAK_LIMIT", "5"))


class PostgresForTests:
    """A running server and its template."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self._administration = server.dsn

    def url(self, database: str) -> str:
        """URL of a database of this server."""
        return f"{self._administration.rpartition('/')[0]}/{database}"

    async def make_template(self) -> None:
        await self._execute(f"CREATE DATABASE {TEMPLATE}")
        await migrate.upgrade(self.url(TEMPLATE))
        # Nobody may connect any more, or cloning would have to wait.
        await self._execute(f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false")

    async def create(self, *, empty: bool = False) -> str:
        """A new database, a clone of the template unless ``empty``; returns its name."""
        name = f"test_{secrets.token_hex(6)}"
        await self._execute(f"CREATE DATABASE {name}" + ("" if empty else f" TEMPLATE {TEMPLATE}"))
        return name

    async def drop(self, name: str) -> None:
        """Drop a database whoever is connected."""
        await self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def connections(self, name: str) -> list[str]:
        """What each client connection to ``name`` is and did last."""
        rows = await self._fetch(
            "SELECT pid, application_name, state, left(query, 120) AS query FROM pg_stat_activity "
            "WHERE datname = $1 AND backend_type = 'client backend'",
            name,
        )
        return [f"pid {row['pid']} {row['application_name']!r} {row['state']}: {row['query']}" for row in rows]

    async def leaked(self, name: str) -> list[str]:
        """Connections to ``name`` still there after the limit; closing takes the server a moment."""
        deadline = time.monotonic() + LEAK_LIMIT
        while (found := await self.connections(name)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return found

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._administration)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        connection = await asyncpg.connect(self._administration)
        try:
            return list(await connection.fetch(query, *values))
        finally:
            await connection.close()


@contextmanager
def running_postgres(*, template: bool = True, fsync: bool = False) -> Iterator[PostgresForTests]:
    """Start a server with a migrated template; stop and remove it afterwards."""
    home = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    # The unprivileged user that runs the server as root must be able to pass.
    home.chmod(0o711)
    server = EmbeddedPostgres(load_settings(home=home, postgres_fsync=fsync, database_url=None), max_connections=300)
    with asyncio.Runner() as runner:
        try:
            runner.run(server.start())
            postgres = PostgresForTests(server)
            if template:
                runner.run(postgres.make_template())
            yield postgres
        finally:
            runner.run(server.stop())
            shutil.rmtree(home, ignore_errors=True)
