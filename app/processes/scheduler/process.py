"""The scheduler as a process of its own: planning, housekeeping, and the local executor beside them."""

from __future__ import annotations

import asyncio

from app.kernel.clock import SystemClock
from app.kernel.telemetry import get_logger
from app.processes.executor.local import LocalExecutor
from app.processes.host import Host
from app.processes.scheduler.scheduler import TOPICS, Scheduler
from app.store.wakeups import Listener

_log = get_logger("scheduler")


async def serve(host: Host) -> None:
    """Schedule and execute until the host is stopped, or ends because its lease is lost.

    Without a lease its attempts belong to its peers: the process ends (and them with it) and is started anew.
    """
    ending = asyncio.Event()
    async with (
        Listener.open(host.database, host.notifier, TOPICS) as planning,
        Listener.open(host.database, host.notifier, ["tasks", "dags"]) as executing,
        asyncio.TaskGroup() as group,
    ):
        scheduler = Scheduler(
            database=host.database,
            notifier=host.notifier,
            listener=planning,
            settings=host.settings,
            clock=SystemClock(),
            job=host.job,
        )
        executor = LocalExecutor(
            database=host.database,
            notifier=host.notifier,
            listener=executing,
            settings=host.settings,
            owner_id=host.job.id,
        )
        group.create_task(scheduler.run(ending), name="scheduler")
        group.create_task(executor.run(ending), name="executor")
        await _first(host.stop, host.job.lease_lost)
        if host.job.lease_lost.is_set():
            _log.error("the lease is lost; ending", action="lease_lost", job_id=host.job.id)
        ending.set()


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
