"""One run of `tidegate standalone`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from rich.console import Console

from app.interfaces.cli.standalone_checks import made_folder
from app.kernel.home import stored_secret
from app.kernel.settings import PREFIX, Settings
from app.kernel.telemetry import get_logger
from app.processes.standalone import Member, member_environment, supervise
from app.services.secrets import load_keys
from app.store.embedded import EmbeddedPostgres
from app.store.migrate import upgrade

_log = get_logger("standalone")

#: How long the summary waits for the API's first answer, in seconds; the processes go on starting after that.
READY_LIMIT = 60.0


class Standalone:
    """One run of the command; the API listens on ``port``."""

    def __init__(self, settings: Settings, *, port: int) -> None:
        self._port = port
        self._settings = settings
        self._stop = asyncio.Event()
        self._console = Console(stderr=False, highlight=False)

    async def run(self) -> None:
        """Start everything, keep it running until SIGINT or SIGTERM, end everything."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        if made_folder(self._settings.pipelines_folder):
            self._say(f"Made the pipelines folder {self._settings.pipelines_folder}, which was not there")
        password, password_file = self._admin_password()
        load_keys(self._settings)
        async with self._database() as dsn:
            self._say("Bringing the database's schema up to date")
            await upgrade(dsn)
            environment = member_environment(os.environ, self._member_settings(dsn, password))
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(self._tell_when_ready(password, password_file))
                await supervise(self._members(), environment=environment, stop=self._stop)
                telling.cancel()
        self._say("Stopped")

    def _members(self) -> list[Member]:
        commands = ("dag-processor", "triggerer", "scheduler", "api-server")
        return [Member(name=command, arguments=(command,)) for command in commands]

    def _member_settings(self, dsn: str, password: str) -> dict[str, str]:
        values = {
            "DATABASE_URL": dsn,
            "HOME": str(self._settings.home),
            "DAGS_FOLDER": str(self._settings.pipelines_folder),
            "API_HOST": self._settings.api_host,
            "API_PORT": str(self._port),
            "ADMIN_PASSWORD": password,
        }
        return {f"{PREFIX}{name}": value for name, value in values.items()}

    def _admin_password(self) -> tuple[str, Path | None]:
        """The password of ``admin``, and the file it is kept in unless a setting gives it."""
        if self._settings.admin_password is not None:
            return self._settings.admin_password.get_secret_value(), None
        path = self._settings.home / "admin.password"
        password, _ = stored_secret(path)
        return password, path

    @asynccontextmanager
    async def _database(self) -> AsyncIterator[str]:
        if self._settings.database_url is not None:
            yield self._settings.database_url.get_secret_value()
            return
        async with EmbeddedPostgres(self._settings, progress=self._say) as server, asyncio.TaskGroup() as group:
            watching = group.create_task(self._keep_database(server))
            yield server.dsn
            watching.cancel()

    async def _keep_database(self, server: EmbeddedPostgres) -> None:
        """Start the embedded server again, on the same port, if it ends by itself."""
        while True:
            status = await server.wait()
            _log.error("the embedded PostgreSQL ended; starting it again", action="database_restart", status=status)
            await server.restart()

    async def _tell_when_ready(self, password: str, password_file: Path | None) -> None:
        address = f"http://{_spoken_host(self._settings.api_host)}:{self._port}"
        await _answers(f"{address}/api/v2/version")
        lines = [
            f"[bold]Tidegate[/bold] is at {address} (API under /api/v2, description at /docs)",
            f"Pipelines are read from {self._settings.pipelines_folder}",
        ]
        if password_file is None:
            lines.append("User admin, password as in TIDEGATE_ADMIN_PASSWORD")
        else:
            lines.append(f"User admin, password {password} (kept in {password_file})")
        lines.append("Ctrl-C stops everything")
        for line in lines:
            self._say(line)

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)


async def _answers(url: str) -> None:
    """Wait for the first answer, up to the limit."""
    loop = asyncio.get_running_loop()
    end = loop.time() + READY_LIMIT
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as client:
        while loop.time() < end:
            try:
                async with client.get(url):
                    return
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.1)
    _log.warning("the API does not answer yet", action="not_ready", waited=READY_LIMIT)


def _spoken_host(host: str) -> str:
    return "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
