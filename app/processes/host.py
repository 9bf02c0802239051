"""What every long-running process of the service has in common: a database, wake-ups, a job row, signals, an end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass

from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.endings import end_at_latest, must_end
from app.services.jobs import JobSession
from app.store.database import Database
from app.store.errors import DatabaseUnavailable
from app.store.migrate import check
from app.store.wakeups import Notifier

_log = get_logger("host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a process is given to work with. ``stop`` is set once it has been asked to end."""

    settings: Settings
    database: Database
    notifier: Notifier
    job: JobSession
    stop: asyncio.Event


Serve = Callable[[Host], Awaitable[None]]


async def host(settings: Settings, dsn: str, *, job_type: str, serve: Serve, outlives_lease: bool = False) -> None:
    """Run ``serve`` as a process of ``job_type`` until SIGTERM or SIGINT.

    Unless it outlives its lease, it has to end once that is lost; if it does not in time, the process is ended.
    Waits for a database that is away, refuses a wrong schema with :class:`app.kernel.errors.WrongSchema`.
    """
    stop = asyncio.Event()

    def asked_to_end() -> None:
        if not stop.is_set():
            stop.set()
            end_at_latest(f"the {job_type}")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_end)
    with ExitStack() as ending:
        async with open_host(settings, dsn, job_type=job_type, stop=stop) as opened:
            _log.info("started", action="started", job_type=job_type, job_id=opened.job.id)
            losing = asyncio.create_task(opened.job.lease_lost.wait(), name="lease-lost")
            if not outlives_lease:
                limit = must_end(f"the {job_type}", job_id=opened.job.id)
                losing.add_done_callback(lambda task: None if task.cancelled() else ending.enter_context(limit))
            try:
                await serve(opened)
            finally:
                losing.cancel()
    _log.info("stopped", action="stopped", job_type=job_type)


@asynccontextmanager
async def open_host(settings: Settings, dsn: str, *, job_type: str, stop: asyncio.Event) -> AsyncIterator[Host]:
    """Open what a process works with; everything is closed and the job ended when the block ends."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(await connect_patiently(settings, dsn))
        await check(dsn)
        notifier = await stack.enter_async_context(Notifier.open(database))
        job = await stack.enter_async_context(JobSession.open(database, job_type, settings=settings, patient=True))
        yield Host(settings=settings, database=database, notifier=notifier, job=job, stop=stop)


async def connect_patiently(settings: Settings, dsn: str) -> Database:
    """Connect, waiting as long as the server is away (and saying so)."""
    trouble = LimitedLog(_log)
    pause = 0.1
    while True:
        try:
            database = await Database.connect(dsn, pool_size=settings.database_pool_size)
        except DatabaseUnavailable as error:
            trouble.failed("database", "the database is away; waiting for it", error=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
        else:
            trouble.recovered("database", "the database answers again")
            return database
