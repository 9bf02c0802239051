"""The local executor: runs task attempts as processes of this machine, inside the scheduler's process.

It claims what is ready as long as it has free slots, follows each attempt to its end, and reports. Recording a start
and recording an outcome are group commits over all attempts at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from app.domain.orders import AttemptOrder, Failed, Outcome
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.batching import Batcher
from app.processes.executor import messages
from app.processes.executor.attempt import Attempt, Lost
from app.processes.executor.parents import PipelineUnusable, WarmParents
from app.services import bundles, tasks
from app.store.database import Database
from app.store.errors import DatabaseUnavailable
from app.store.wakeups import Listener, Notifier

_log = get_logger("executor")

#: How often idle warm parents are looked for, in seconds.
EVICTION_INTERVAL = 30.0
#: Longest a stopping executor waits for its attempts after SIGTERM, in seconds.
STOP_GRACE = 2.0


def log_path(settings: Settings, order: AttemptOrder) -> str:
    """Where the log of an attempt is kept."""
    parts = {"dag_id": order.run.dag_id, "run_id": order.run.run_id, "task_id": order.task_id}
    folder = settings.home / "logs"
    for name, value in parts.items():
        folder = folder / f"{name}={quote(value, safe='')}"
    if order.map_index >= 0:
        folder = folder / f"map_index={order.map_index}"
    return str(folder / f"attempt={order.try_number}.log")


class LocalExecutor:
    """Runs attempts for the job ``owner_id``, at most ``settings.parallelism`` at a time."""

    def __init__(
        self, *, database: Database, notifier: Notifier, listener: Listener, settings: Settings, owner_id: int
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._listener = listener
        self._settings = settings
        self._owner_id = owner_id
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._trouble = LimitedLog(_log, "database")
        self._parents = WarmParents(
            logs=settings.home / "logs",
            limit=settings.warm_parent_limit,
            idle_seconds=settings.warm_parent_idle_seconds,
        )

    @property
    def free_slots(self) -> int:
        """How many more attempts it may start."""
        return self._settings.parallelism - len(self._running)

    async def run(self, stop: asyncio.Event) -> None:
        """Claim and run attempts until ``stop``; then end what runs and give back what has not started."""
        try:
            async with (
                Batcher.open(self._record_starts) as self._starts,
                Batcher.open(self._record_ends) as self._ends,
                asyncio.TaskGroup() as group,
            ):
                evicting = group.create_task(self._evict_for_ever())
                while not stop.is_set():
                    claimed = await self._claim()
                    for order in claimed:
                        task = group.create_task(self._run_attempt(order), name=f"attempt:{order.task_instance_id}")
                        self._running[task] = Attempt(
                            order, requests=self, kill_grace=self._settings.task_kill_grace
                        )
                        task.add_done_callback(self._forget)
                    if not claimed:
                        await self._listener.wait(timeout=1.0)
                evicting.cancel()
                await self._end_running()
        finally:
            await self._parents.stop()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._listener.hear(self._listener.topics)  # a slot is free

    async def _claim(self) -> Sequence[AttemptOrder]:
        if self.free_slots <= 0:
            return ()
        try:
            claimed = await tasks.claim(self._database, owner_id=self._owner_id, limit=self.free_slots)
        except DatabaseUnavailable as error:
            self._trouble.failed(error)
            return ()
        self._trouble.recovered()
        return [msgspec.structs.replace(order, log_path=log_path(self._settings, order)) for order in claimed]

    async def _run_attempt(self, order: AttemptOrder) -> None:
        me = asyncio.current_task()
        assert me is not None
        attempt = self._running[me]
        result: Outcome | Lost | None
        try:
            root = await bundles.materialise(self._database, order.bundle_digest, self._settings.home / "bundles")
            parent = await self._parents.parent(digest=order.bundle_digest, root=root, entry=order.entry)
            result = await attempt.run(parent, lambda: self._starts.submit(attempt))
        except PipelineUnusable as error:
            result = Failed(error=str(error))
        except asyncio.CancelledError:
            await self._report(order, Lost(reason="the executor was stopped"))
            raise
        except Exception as error:
            _log.exception("an attempt could not be run", action="attempt_failed", task_id=order.task_id)
            result = Lost(reason=f"{type(error).__name__}: {error}")
        if result is not None:
            await self._report(order, result)

    async def _report(self, order: AttemptOrder, result: Outcome | Lost) -> None:
        await self._ends.submit(tasks.AttemptReport.of(order, result))
