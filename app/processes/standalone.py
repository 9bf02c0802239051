"""Everything on one machine with one command: database, migrations, and one process of each kind, kept running."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from app.kernel.children import PARENT_VARIABLE, python_command
from app.kernel.telemetry import get_logger

_log = get_logger("standalone")

#: From SIGTERM to SIGKILL for the processes of a stopping standalone, in seconds (all at once).
STOP_GRACE = 2.7
#: Pauses before a process that ended by itself starts again, in seconds; reset after a minute of running.
RESTART_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
HEALTHY_AFTER = 60.0


@dataclass(slots=True, kw_only=True)
class Member:
    """One supervised process."""

    name: str
    arguments: tuple[str, ...]
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    _recent: int = field(default=0)

    async def keep_running(self, environment: Mapping[str, str], stop: asyncio.Event) -> None:
        """Start the process, and again whenever it ends before ``stop``."""
        while not stop.is_set():
            started = time.monotonic()
            self.process = await asyncio.create_subprocess_exec(
                *python_command("app.main", *self.arguments),
                env=dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                # A terminal's Ctrl-C is for the supervisor, who stops its members in order.
                start_new_session=True,
            )
            if stop.is_set():
                await self.end()  # asked for while it was being started: nobody else knew of it
            status = await self.process.wait()
            if stop.is_set():
                return
            if time.monotonic() - started > HEALTHY_AFTER:
                self._recent = 0
            pause = RESTART_PAUSES[min(self._recent, len(RESTART_PAUSES) - 1)]
            self._recent += 1
            self.restarts += 1
            _log.error(
                "a process ended; starting it again", action="restart", name=self.name, status=status, pause=pause
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    async def end(self) -> None:
        """SIGTERM, then SIGKILL after the grace period."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_GRACE)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def supervise(
    members: list[Member],
    *,
    environment: Mapping[str, str],
    stop: asyncio.Event,
    when_started: Callable[[], None] | None = None,
) -> None:
    """Keep ``members`` running until ``stop``; then end them all within the grace period."""
    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(member.keep_running(environment, stop), name=member.name)
        if when_started is not None:
            when_started()
        await stop.wait()
        async with asyncio.TaskGroup() as ending:
            for member in members:
                ending.create_task(member.end())


def member_environment(base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a member: it has the database's address and ends when its supervisor is gone."""
    environment = {**base, **extra, PARENT_VARIABLE: str(os.getpid())}
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment
