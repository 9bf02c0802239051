"""The scheduler process: the planner, housekeeping and the local executor under one job."""

from __future__ import annotations

import asyncio

from app.kernel.clock import SystemClock
from app.kernel.errors import TidegateError
from app.processes.executor.local import LocalExecutor
from app.processes.home_retention import HomeKeeper
from app.processes.host import Host
from app.processes.scheduler.scheduler import TOPICS, Scheduler
from app.store.wakeups import Listener


class SchedulerFenced(TidegateError):
    """The lease of scheduler {job_id} was lost: its attempts are retried elsewhere, and it ended them here. Start it
    again; if this repeats, the database or this machine is too slow for TIDEGATE_HEARTBEAT_INTERVAL."""


async def serve(host: Host) -> None:
    """Schedule and execute until the host is asked to stop.

    Raises:
        SchedulerFenced: The job's lease was lost. What ran here has been ended.
    """
    stop = asyncio.Event()
    async with (
        Listener.open(host.database, host.notifier, TOPICS) as planning,
        Listener.open(host.database, host.notifier, ["tasks", "dags"]) as executing,
        HomeKeeper.keeping(host.database, host.settings),
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
        group.create_task(scheduler.run(stop), name="scheduler")
        group.create_task(executor.run(stop), name="executor")
        await _either(host.stop, host.job.lease_lost)
        stop.set()
    if host.job.lease_lost.is_set() and not host.stop.is_set():
        raise SchedulerFenced(job_id=host.job.id)


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(event.wait()) for event in (first, second)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
