"""The triggerer: holds a lease, claims triggers, has them run by runners and stores what they deliver.

No user code runs here. Each lease is a world of its own: once it is lost, its runners are closed without another write,
a new lease is taken, and what the old one still owned is given up and claimed again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

from app.kernel.clock import Clock, SystemClock
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.endings import end_tasks, must_end
from app.processes.triggerer.committer import Committer
from app.processes.triggerer.holdings import FALLBACK, Holdings
from app.processes.triggerer.memory import told
from app.processes.triggerer.messages import Configure
from app.processes.triggerer.peers import Peers
from app.processes.triggerer.runner import RunnerKey, RunnerProcess
from app.processes.triggerer.runners import Runners
from app.processes.triggerer.supervisor import Supervisor
from app.processes.triggerer.trigger_logs import TriggerLogs
from app.processes.triggerer.warming import Warming
from app.processes.triggerer.watchdog import LOOK_EVERY, Blocked, thread_state
from app.processes.triggerer.writes import QueuedWrites
from app.services import bundles, jobs, triggers
from app.services.jobs import JobSession
from app.services.secrets import Keys
from app.store.database import Database
from app.store.errors import StoreError
from app.store.wakeups import Listener, Notifier

#: How long a clean stop may take before runners are killed, in seconds.
STOP_SECONDS = 10.0
_TROUBLE_PAUSE = 0.5

_log = get_logger("triggerer")


class Triggerer:
    """One process of the service. :meth:`run` returns after a clean stop."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        settings: Settings,
        keys: Keys,
        deployment: str,
        capacity: int | None = None,
        queues: Sequence[str] | None = None,
        team_name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.database = database
        self.notifier = notifier
        self.settings = settings
        self.keys = keys
        self.deployment = deployment
        self.capacity = capacity or settings.triggerer_capacity
        self.queues = None if queues is None else tuple(queues)
        self.team_name = team_name
        self.clock = clock or SystemClock()
        #: The lease in force, for whoever looks on (tests, health).
        self.lease: _Lease | None = None

    async def run(self, stop: asyncio.Event, *, hurry: asyncio.Event | None = None) -> None:
        """Work until ``stop``; ``hurry`` cuts the clean stop short."""
        trouble = LimitedLog(_log)
        previous: int | None = None
        while not stop.is_set():
            try:
                async with JobSession.open(
                    self.database,
                    "triggerer",
                    self.settings,
                    capacity=self.capacity,
                    queues=self.queues,
                    team_name=self.team_name,
                ) as job:
                    trouble.recovered("lease", "a lease is held again", action="lease_taken", job_id=job.id)
                    if previous is not None:
                        await jobs.retire(self.database, self.notifier, previous)
                    previous = job.id
                    self.lease = _Lease(self, job)
                    await self.lease.serve(stop, hurry or asyncio.Event())
            except (StoreError, TimeoutError, OSError) as error:
                trouble.failed("lease", f"no lease can be taken: {error}", action="lease_unavailable")
                await _first(stop.wait(), asyncio.sleep(_TROUBLE_PAUSE))
            finally:
                self.lease = None


class _Lease:
    """Everything that lives as long as one lease."""

    def __init__(self, triggerer: Triggerer, job: JobSession) -> None:
        self._triggerer = triggerer
        self._database = triggerer.database
        self._notifier = triggerer.notifier
        self._settings = triggerer.settings
        self.job = job
        self.committer = Committer(self._database, self._notifier, owner_id=job.id, settings=triggerer.settings)
        self._writes = QueuedWrites(self._database, self._notifier, owner_id=job.id, clock=triggerer.clock)
        self._trouble = LimitedLog(_log)
        self._announced = 0.0
        self._reporting: set[asyncio.Task[None]] = set()
        self.runners: Runners
        self.supervisor: Supervisor

    async def serve(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Claim and run triggers until ``stop`` or the end of the lease; if it is lost, for a limited time longer."""
        with ExitStack() as ending:
            await self._serve(stop, hurry, ending)

    async def _serve(self, stop: asyncio.Event, hurry: asyncio.Event, ending: ExitStack) -> None:
        async with asyncio.TaskGroup() as group:
            self.runners = Runners(
                group,
                prepare=self._configure,
                environment={"TIDEGATE_DEPLOYMENT": self._triggerer.deployment},
                block_warning=self._settings.block_warning,
            )
            self.supervisor = Supervisor(
                settings=self._settings,
                clock=self._triggerer.clock,
                committer=self.committer,
                runners=self.runners,
                logs=TriggerLogs(self._settings.home),
                writes=self._writes,
            )
            self._writes.on_fenced = self.supervisor.fenced
            self.committer.on_pressure = self.supervisor.throttling.pressed
            claiming = group.create_task(self._claim_for_ever(), name="triggerer:claim")
            peers = Peers(self._database, self._notifier, self._settings, job_id=self.job.id)
            warming = group.create_task(Warming(self._database, self.runners).keep_warm(), name="triggerer:warm")
            others = [
                warming,
                group.create_task(peers.watch_for_ever(), name="triggerer:peers"),
                group.create_task(self.committer.run(), name="triggerer:commit"),
                group.create_task(self._writes.run(), name="triggerer:write"),
                group.create_task(self._relieve_for_ever(), name="triggerer:relieve"),
                group.create_task(self._for_ever("lease", self._announce), name="triggerer:lease"),
                group.create_task(self._for_ever("watch", self._watch), name="triggerer:watch"),
            ]
            await _first(stop.wait(), self.job.lease_lost.wait())
            claiming.cancel()
            warming.cancel()
            if self.job.lease_lost.is_set():
                ending.enter_context(must_end("the triggerer", job_id=self.job.id))
                self.supervisor.is_closing = True
                await self._end_runners(hurry)
            else:
                await self._stop_cleanly(hurry)
            await end_tasks((claiming, *others, *self._reporting))

    # ----------------------------------------------------------------------------------------------- the end

    async def _stop_cleanly(self, hurry: asyncio.Event) -> None:
        """What is in hand is stored, generators are closed, triggers released."""
        self.supervisor.close_all()
        self.committer.give_up_held()
        await _first(self._all_closed(), hurry.wait(), self.job.lease_lost.wait(), asyncio.sleep(STOP_SECONDS))
        await self._end_runners(hurry)
        if not self.job.lease_lost.is_set():
            release = triggers.release_all(self._database, self._notifier, owner_id=self.job.id)
            try:
                async with asyncio.timeout(2.0):
                    await release
            except (StoreError, TimeoutError) as error:
                _log.warning(
                    "triggers could not be released; peers see our end", action="not_released", error=str(error)
                )

    async def _all_closed(self) -> None:
        await self.supervisor.empty.wait()
        await self.committer.idle.wait()
        await self._writes.done()

    async def _end_runners(self, hurry: asyncio.Event) -> None:
        await _first(self.runners.close(), hurry.wait(), asyncio.sleep(STOP_SECONDS))
        self.runners.kill()
        await self.runners.close()

    # -------------------------------------------------------------------------------------------- the loops

    async def _for_ever(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        """``turn`` after ``turn``; one that fails is told and followed by the next."""
        while True:
            try:
                await turn()
            except (StoreError, TimeoutError) as error:
                self._trouble.failed(name, f"{name}: {error}", action="triggerer_trouble")
                await asyncio.sleep(_TROUBLE_PAUSE)
            except Exception as error:  # noqa: BLE001 — one defect in a round must not end what serves all others
                self._trouble.failed(name, f"{name} failed: {error!r}", action="triggerer_failed", exc_info=error)
                await asyncio.sleep(_TROUBLE_PAUSE)
            else:
                self._trouble.recovered(name, f"{name} works again", action="triggerer_recovered")

    async def _claim_for_ever(self) -> None:
        async with Listener.open(self._database, self._notifier, {"triggers"}) as listener:
            again_in = 0.0
            holdings = Holdings(self._triggerer, self.job, self.supervisor)

            async def turn() -> None:
                nonlocal again_in
                if again_in > 0:
                    await listener.wait(timeout=again_in)
                again_in = FALLBACK
                again_in = await holdings.look()

            await self._for_ever("claim", turn)

    async def _relieve_for_ever(self) -> None:
        """Look again at what is held back whenever consumers may have caught up."""
        async with Listener.open(self._database, self._notifier, {"demand", "runs"}) as listener:
            while True:
                await listener.wait(timeout=FALLBACK)
                self.committer.reconsider()

    async def _announce(self) -> None:
        """Pass every renewal of the lease on to the runners, and say with the next what they take."""
        if self.job.confirmed_at != self._announced:
            self._announced = self.job.confirmed_at
            self.runners.announce_lease()
            self.job.describe(told(self.runners.live, self.supervisor.held.values()))
        await asyncio.sleep(min(self._settings.heartbeat_interval / 4, 0.5))

    async def _watch(self) -> None:
        """Look at all runners for a while, each :data:`LOOK_EVERY` seconds."""
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            for runner in self.runners.live:
                self._look_at(runner, elapsed=now - looked_at)
            looked_at = now

    def _look_at(self, runner: RunnerProcess, *, elapsed: float) -> None:
        if runner.pid is None or not runner.is_ready:
            return
        sample = runner.sample()
        thread = thread_state(runner.pid) if runner.watch.is_suspect(sample) else None
        blocked = runner.watch.look(sample, thread, elapsed=elapsed)
        if blocked is None:
            return
        if blocked.seconds >= self._settings.block_limit:
            _log.warning(
                f"runner {runner.key} is replaced: blocked for {blocked.seconds:.1f} s",
                action="runner_replaced",
                pid=runner.pid,
                trigger_id=blocked.trigger_id or None,
            )
            runner.kill(blame=blocked.trigger_id)
        elif blocked.is_first:
            report = asyncio.create_task(self._report(runner, blocked), name="triggerer:report")
            self._reporting.add(report)
            report.add_done_callback(self._reporting.discard)

    async def _report(self, runner: RunnerProcess, blocked: Blocked) -> None:
        try:
            stack = await runner.stack()
        except ProcessLookupError:
            return
        self.supervisor.blocked(runner, blocked, stack=stack)

    async def _configure(self, key: RunnerKey) -> Configure:
        root = None
        if key.bundle is not None:
            folder = self._settings.home / "bundles"
            root = str(
                await self._database.until_available(
                    lambda: bundles.materialise(self._database, key.bundle or "", folder)
                )
            )
        return Configure(
            job_id=self.job.id,
            max_payload_bytes=self._settings.max_payload_bytes,
            max_payload_depth=self._settings.max_payload_depth,
            raw_limit=self._settings.dead_letter_raw_limit,
            lease_seconds=self._settings.lease_seconds,
            stop_seconds=STOP_SECONDS / 2,
            bundle_root=root,
            lag_interval=self._settings.lag_interval,
            events_per_second=self._settings.trigger_events_per_second,
            pending_events=self._settings.trigger_pending_events,
            pending_bytes=self._settings.trigger_pending_bytes,
        )


async def _first(*awaitables: Awaitable[object]) -> None:
    """Wait for the first of them; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
