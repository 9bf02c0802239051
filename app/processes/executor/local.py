"""The local executor: runs task attempts as processes of this machine, inside the scheduler's process.

It claims what is ready as long as it has free slots, follows each attempt to its end, and reports. Recording a start
and recording an outcome are group commits over all attempts at hand.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.domain.orders import AttemptOrder, EventValue, Failed, Outcome
from app.domain.specs import AssetKey
from app.kernel.attempt_logs import append_line, attempt_log_path
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.batching import Batcher
from app.processes.executor import messages
from app.processes.executor.attempt import Attempt, Lost
from app.processes.executor.log_cutter import LOOK_INTERVAL, LogCutter
from app.processes.executor.parents import ParentGone, PipelineUnusable, WarmParent, WarmParents
from app.processes.executor.prewarming import Prewarmer
from app.services import bundles, inlets, tasks
from app.store.database import Database
from app.store.errors import DatabaseUnavailable
from app.store.wakeups import Listener, Notifier

_log = get_logger("executor")

#: How often idle warm parents are looked for, in seconds.
EVICTION_INTERVAL = 30.0
#: How long the interpreter of a warm parent may take to start, in seconds; a busy machine is no fault of the file.
START_LIMIT = 60.0
#: Longest a stopping executor lets its attempts end after SIGTERM, in seconds.
STOP_GRACE = 1.0


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
        self._hostname = socket.gethostname()
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._starts: Batcher[Attempt, bool]
        self._ends: Batcher[tasks.AttemptReport, tasks.ReportResult]
        self._trouble = LimitedLog(_log)
        self._stopping = False
        self._claim_is_doubtful = False
        self._parents = WarmParents(
            logs=settings.home / "logs",
            limit=settings.warm_parent_limit,
            idle_seconds=settings.warm_parent_idle_seconds,
            import_limit=START_LIMIT + settings.dag_parse_timeout,
        )
        self._bundles = settings.home / "bundles"
        self._prewarmer = Prewarmer(
            database=database, parents=self._parents, folder=self._bundles, limit=settings.warm_parent_limit
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
                caring = [
                    group.create_task(self._evict_for_ever(), name="evict-warm-parents"),
                    group.create_task(self._prewarmer.run_for_ever(), name="prewarm"),
                    group.create_task(self._cut_logs_for_ever(), name="cut-logs"),
                ]
                await self._claim_until(stop, group)
                for each in caring:
                    each.cancel()
                await self._end_running()
        finally:
            await self._parents.stop()

    async def _claim_until(self, stop: asyncio.Event, group: asyncio.TaskGroup) -> None:
        stopping = group.create_task(stop.wait(), name="stop")
        stopping.add_done_callback(lambda _: self._wake())
        while not stop.is_set():
            claimed = await self._claim()
            for order in claimed:
                attempt = Attempt(order, requests=self, kill_grace=self._settings.task_kill_grace)
                task = group.create_task(self._run_attempt(attempt), name=f"attempt:{order.task_instance_id}")
                self._running[task] = attempt
                task.add_done_callback(self._forget)
            if not claimed and "dags" in await self._listener.wait(timeout=1.0):
                self._prewarmer.look()

    def _forget(self, task: asyncio.Task[None]) -> None:
        was_full = self.free_slots <= 0
        self._running.pop(task, None)
        if was_full:
            self._wake()

    def _wake(self) -> None:
        self._listener.hear({"tasks"})

    async def _claim(self) -> Sequence[AttemptOrder]:
        if self.free_slots <= 0:
            return ()
        try:
            await self._return_unknown_claims()
            claimed = await tasks.claim(self._database, owner_id=self._owner_id, limit=self.free_slots)
        except DatabaseUnavailable as error:
            self._claim_is_doubtful = True
            self._trouble.failed("claim", "cannot claim tasks: the database is away", error=str(error))
            await asyncio.sleep(0.2)
            return ()
        self._trouble.recovered("claim", "tasks are claimed again")
        limit = self._settings.task_log_max_bytes
        return [msgspec.structs.replace(order, log_path=self._log_path(order), log_limit=limit) for order in claimed]

    async def _return_unknown_claims(self) -> None:
        """A claim may have been committed although its answer was lost: nobody would ever start those attempts."""
        if self._claim_is_doubtful:
            known = [attempt.order for attempt in self._running.values()]
            await tasks.give_back(self._database, self._notifier, owner_id=self._owner_id, but=known)
            self._claim_is_doubtful = False

    def _log_path(self, order: AttemptOrder) -> str:
        return str(
            attempt_log_path(
                self._settings.home,
                dag_id=order.run.dag_id,
                run_id=order.run.run_id,
                task_id=order.task_id,
                map_index=order.map_index,
                attempt=order.try_number,
            )
        )

    async def _run_attempt(self, attempt: Attempt) -> None:
        order = attempt.order
        result: Outcome | Lost | None
        try:
            parent = await self._warm_parent(order)
            result = await attempt.run(parent, lambda: self._starts.submit(attempt))
        except PipelineUnusable as error:
            result = Failed(error=str(error))
        except ParentGone as error:
            result = Lost(reason=str(error))
        except DatabaseUnavailable as error:
            result = Lost(reason=f"the database was away when the attempt should start: {error}")
        except Exception as error:  # noqa: BLE001 - one attempt's trouble must not end the executor
            _log.exception("an attempt could not be run", action="attempt_failed", task_id=order.task_id)
            result = Lost(reason=f"{type(error).__name__}: {error}")
        if result is not None:
            await self._say_why(attempt, result)
            await self._ends.submit(tasks.AttemptReport.of(order, result))

    async def _say_why(self, attempt: Attempt, result: Outcome | Lost) -> None:
        """End the log of an attempt whose process could not: whoever reads it must see why it stops."""
        if attempt.has_reported or not isinstance(result, Failed | Lost):
            return
        reason = result.error if isinstance(result, Failed) else result.reason
        path = attempt.order.log_path
        try:
            await asyncio.to_thread(append_line, path, reason, level="error", logger="tidegate.executor")
        except OSError as error:
            _log.warning("the log of an attempt cannot be ended", action="log_not_ended", path=path, error=str(error))

    async def _warm_parent(self, order: AttemptOrder) -> WarmParent:
        parent = self._parents.known(digest=order.bundle_digest, entry=order.entry)
        if parent is None:
            root = await bundles.materialise(self._database, order.bundle_digest, self._bundles)
            parent = await self._parents.parent(digest=order.bundle_digest, root=root, entry=order.entry)
        return parent

    async def _record_starts(self, attempts: Sequence[Attempt]) -> Sequence[bool]:
        if self._stopping:
            return [False] * len(attempts)  # given back by _end_running
        started = [
            tasks.StartedAttempt(
                task_instance_id=attempt.order.task_instance_id,
                epoch=attempt.order.epoch,
                pid=attempt.process.pid if attempt.process else None,
            )
            for attempt in attempts
        ]
        allowed = await self._database.until_available(
            lambda: tasks.mark_running(
                self._database, owner_id=self._owner_id, attempts=started, hostname=self._hostname
            ),
            on_trouble=self._on_trouble,
        )
        return [one.task_instance_id in allowed for one in started]

    async def _record_ends(self, reports: Sequence[tasks.AttemptReport]) -> Sequence[tasks.ReportResult]:
        results = await self._database.until_available(
            lambda: tasks.finish(self._database, self._notifier, owner_id=self._owner_id, reports=reports),
            on_trouble=self._on_trouble,
        )
        self._trouble.recovered("record", "starts and ends of attempts are recorded again")
        for result in results:
            if result.is_stale:
                _log.warning(
                    "an attempt was superseded; its result is not kept",
                    action="stale_report",
                    task_instance_id=result.task_instance_id,
                )
        return results

    def _on_trouble(self, error: BaseException) -> None:
        self._trouble.failed("record", "cannot record attempts: the database is away", error=str(error))

    async def _evict_for_ever(self) -> None:
        while True:
            await asyncio.sleep(EVICTION_INTERVAL)
            await self._parents.evict_idle()

    async def _cut_logs_for_ever(self) -> None:
        cutter = LogCutter(limit=self._settings.task_log_max_bytes)
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            await cutter.look({attempt.order.log_path for attempt in self._running.values()})

    async def _end_running(self) -> None:
        """End what runs: its tries are lost and retried by rule. Claims that never started go back unharmed."""
        self._stopping = True
        await asyncio.gather(*(attempt.terminate(STOP_GRACE) for attempt in self._running.values()))
        await self._parents.stop()  # some may wait for an import that never ends
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_GRACE)
        await tasks.give_back(self._database, self._notifier, owner_id=self._owner_id)

    async def pull(self, order: AttemptOrder, request: messages.PullXCom) -> list[tuple[str, str]]:
        """XComs of the attempt's run. While the database is away the task waits, as it would for a slow one."""
        rows = await self._database.until_available(
            lambda: tasks.pull_xcoms(
                self._database,
                dag_id=order.run.dag_id,
                run_id=order.run.run_id,
                task_ids=request.task_ids,
                key=request.key,
            )
        )
        place = {task_id: number for number, task_id in enumerate(request.task_ids)}
        return [(row.task_id, row.value) for row in sorted(rows, key=lambda row: (place[row.task_id], row.map_index))]

    async def inlet_events(self, order: AttemptOrder, request: messages.ListInletEvents) -> list[EventValue]:
        """Events of an inlet asset. Waits like :meth:`pull`."""
        del order  # any asset may be read; rights per asset come with users
        return await self._database.until_available(
            lambda: inlets.inlet_events(
                self._database,
                AssetKey(name=request.name, uri=request.uri),
                after=_moment(request.after),
                before=_moment(request.before),
                ascending=request.ascending,
                limit=request.limit,
            )
        )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
