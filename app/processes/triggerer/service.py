"""The command ``tidegate triggerer``: everything a triggerer works with, signals, and its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from app.kernel.settings import Settings
from app.kernel.telemetry import get_logger
from app.processes.endings import end_at_latest
from app.processes.home_retention import HomeKeeper
from app.processes.host import connect_patiently
from app.processes.triggerer.triggerer import Triggerer
from app.services.deployments import deployment_name
from app.services.secrets import load_keys
from app.store.migrate import check
from app.store.wakeups import Notifier

_log = get_logger("triggerer")


async def serve(
    settings: Settings,
    dsn: str,
    *,
    capacity: int | None = None,
    queues: Sequence[str] | None = None,
    team_name: str | None = None,
) -> None:
    """Run a triggerer until SIGTERM or SIGINT; a second signal cuts the clean stop short.

    Waits for a database that is away, refuses a wrong schema with :class:`app.kernel.errors.WrongSchema`.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()

    def asked_to_end() -> None:
        if stop.is_set():
            hurry.set()
        else:
            stop.set()
            end_at_latest("the triggerer")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_end)
    keys = load_keys(settings)
    async with await connect_patiently(settings, dsn) as database, Notifier.open(database) as notifier:
        await check(dsn)
        triggerer = Triggerer(
            database=database,
            notifier=notifier,
            settings=settings,
            keys=keys,
            deployment=await deployment_name(database),
            capacity=capacity,
            queues=queues,
            team_name=team_name,
        )
        _log.info("started", action="started", job_type="triggerer")
        async with HomeKeeper.keeping(database, settings):
            await triggerer.run(stop, hurry=hurry)
    _log.info("stopped", action="stopped", job_type="triggerer")
