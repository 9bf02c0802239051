"""The scheduler: planning and housekeeping as loops that survive whatever one round meets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from app.kernel.clock import Clock
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.retention import RetentionKeeper
from app.processes.scheduler.housekeeping import Housekeeper
from app.processes.scheduler.planning import Planner
from app.store.database import Database
from app.store.errors import StoreError
from app.store.wakeups import Listener, Notifier

_log = get_logger("scheduler")

#: Longest wait without a look, in seconds: a lost wake-up costs no more.
FALLBACK = 1.0
#: Pause after a round that failed, in seconds.
TROUBLE_PAUSE = 0.5
#: What wakes the planner.
TOPICS = frozenset({"demand", "runs", "dags"})


class Job(Protocol):
    """What the scheduler needs of its job session."""

    @property
    def id(self) -> int:
        """The job's id."""
        ...

    def progress(self) -> None:
        """Note that a round was done."""
        ...


class Scheduler:
    """Plans until it is told to stop. ``listener`` hears :data:`TOPICS` and is nobody else's."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        listener: Listener,
        settings: Settings,
        clock: Clock,
        job: Job,
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._job = job
        self._planner = Planner(database=database, notifier=notifier, clock=clock)
        self._housekeeper = Housekeeper(database=database, notifier=notifier, settings=settings, job_id=job.id)
        self._retention = RetentionKeeper(
            database=database, settings=settings, clock=clock, term=lambda: self._housekeeper.term
        )
        self._trouble = LimitedLog(_log, monotonic=clock.monotonic)
        self._look_at = self._fallback_at = clock.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set. A round under way is cut short; each of its transactions is done or undone."""
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._for_ever("planning", self._plan), name="scheduler:planning"),
                group.create_task(self._for_ever("housekeeping", self._keep_house), name="scheduler:housekeeping"),
                group.create_task(self._for_ever("retention", self._remove_old), name="scheduler:retention"),
            ]
            await stop.wait()
            for loop in loops:
                loop.cancel()

    async def _for_ever(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except StoreError as error:
                self._trouble.failed(
                    name,
                    "the database is in trouble; the scheduler tries again",
                    action="scheduler_database_trouble",
                    loop=name,
                    error=str(error),
                )
                await self._clock.sleep(TROUBLE_PAUSE)
            except Exception as error:  # noqa: BLE001 - one defect in a round must not end the scheduler
                self._trouble.failed(
                    name,
                    "a round failed; the scheduler goes on",
                    level=logging.ERROR,
                    action="scheduler_round_failed",
                    loop=name,
                    exc_info=error,
                )
                await self._clock.sleep(TROUBLE_PAUSE)
            else:
                self._trouble.recovered(name, "the scheduler works again", action="scheduler_recovered", loop=name)

    async def _plan(self) -> None:
        now = self._clock.monotonic()
        topics = await self._listener.wait(timeout=max(self._look_at - now, 0.0))
        now = self._clock.monotonic()
        by_clock = now >= self._look_at or topics != {"demand"}
        if "dags" in topics:
            self._planner.forget_failures()
        fallback_at = now + FALLBACK if by_clock else self._fallback_at
        # Until the round is done it is not known what is due: after a failure the next look comes at once.
        self._look_at = now
        seconds = await self._planner.run_once(by_clock=by_clock)
        self._fallback_at = fallback_at
        self._look_at = fallback_at if seconds is None else min(fallback_at, self._clock.monotonic() + seconds)
        self._job.progress()

    async def _keep_house(self) -> None:
        await self._housekeeper.run_once()
        await self._clock.sleep(FALLBACK)

    async def _remove_old(self) -> None:
        await self._clock.sleep(FALLBACK)
        await self._retention.run_once()
