"""Task attempts: claimed by an executor, started, ended with everything that follows, given back or lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from app.domain.orders import AttemptOrder, Failed, Outcome, OutletEvent, Skipped, Succeeded
from app.domain.retries import may_retry, retry_delay
from app.domain.specs import TaskSpec
from app.domain.states import TaskState
from app.kernel.telemetry import get_logger
from app.services import runs
from app.services.attempts import orders_of
from app.services.events import TaskOutletEvent, record_outlet_events
from app.services.versions import UnusableVersion, versions_of
from app.store import runs as run_statements
from app.store import tasks as statements
from app.store import xcoms
from app.store.database import Database, HotConnection
from app.store.errors import Conflict, DatabaseUnavailable
from app.store.runs import LockedRun
from app.store.statement_plans import plan_for_values
from app.store.tasks import End, Ended
from app.store.wakeups import Notifier
from app.store.xcoms import XComRow

_log = get_logger("tasks")
_NOTE_LIMIT = 2_000
_REQUEUED_AT_ONCE = 500


class ProcessLost(Protocol):
    """An attempt whose process ended without an outcome."""

    @property
    def reason(self) -> str:
        """What is known about it, for people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The attempt's process or executor went away without an outcome."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """How one attempt ended, with what identifies and fences it."""

    task_instance_id: int
    epoch: int
    try_number: int
    max_tries: int
    outcome: Outcome | Lost

    @classmethod
    def of(cls, order: AttemptOrder, outcome: Outcome | ProcessLost) -> AttemptReport:
        """The report on an order."""
        if not isinstance(outcome, Succeeded | Failed | Skipped):
            outcome = Lost(reason=outcome.reason)
        return cls(
            task_instance_id=order.task_instance_id,
            epoch=order.epoch,
            try_number=order.try_number,
            max_tries=order.max_tries,
            outcome=outcome,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """What became of a report. ``state`` None: it was stale (fenced, or the run is gone) and changed nothing."""

    task_instance_id: int
    state: TaskState | None

    @property
    def is_stale(self) -> bool:
        """Whether the report changed nothing."""
        return self.state is None


async def claim(database: Database, *, owner_id: int, limit: int) -> list[AttemptOrder]:
    """Claim up to ``limit`` scheduled tasks for the job ``owner_id``, as orders.

    By priority, fair between DAGs, within each DAG's ``max_active_tasks``; nothing of paused DAGs.
    """

    async def work(hot: HotConnection) -> list[AttemptOrder]:
        waiting = await statements.lock_claimable_dags(hot)
        if not waiting:
            return []
        await plan_for_values(hot, rows=sum(waiting.values()))
        claimed = await statements.claim(hot, owner_id=owner_id, dag_ids=sorted(waiting), limit=limit)
        return await orders_of(database, hot, owner_id=owner_id, claimed=claimed) if claimed else []

    return await database.retrying_hot(work) if limit > 0 else []


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedAttempt:
    """An attempt whose process is there and waits to be let go."""

    task_instance_id: int
    epoch: int
    pid: int | None = None


async def mark_running(
    database: Database, *, owner_id: int, attempts: Sequence[StartedAttempt], hostname: str | None = None
) -> set[int]:
    """Record starts; the task instances that may run. An attempt not among them was taken away: end its process."""
    rows = [(attempt.task_instance_id, attempt.epoch, attempt.pid) for attempt in attempts]
    return await database.retrying_hot(
        lambda hot: statements.mark_running(hot, owner_id=owner_id, attempts=rows, hostname=hostname)
    )


async def finish(
    database: Database, notifier: Notifier, *, owner_id: int, reports: Sequence[AttemptReport]
) -> list[ReportResult]:
    """End attempts: state, XComs, outlet events and what follows for their runs, in one transaction.

    One result a report, in order. If one of them cannot be stored, each is stored by itself; one that cannot be stored
    fails for that reason.
    """
    try:
        return await _finish_together(database, notifier, owner_id=owner_id, reports=reports)
    except (Conflict, DatabaseUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - one result that cannot be stored must not hold up the others
        if len(reports) > 1:
            return [
                result
                for report in reports
                for result in await finish(database, notifier, owner_id=owner_id, reports=[report])
            ]
        [report] = reports
        _log.exception(
            "the result of a task could not be stored",
            action="result_refused",
            task_instance_id=report.task_instance_id,
        )
        reason = f"the result could not be stored: {type(error).__name__}: {error}"
        failed = replace(report, outcome=Failed(error=reason, retry=False))
        return await _finish_together(database, notifier, owner_id=owner_id, reports=[failed])


async def _finish_together(
    database: Database, notifier: Notifier, *, owner_id: int, reports: Sequence[AttemptReport]
) -> list[ReportResult]:
    async def work(hot: HotConnection) -> _Ending:
        ending = _Ending(database, hot, owner_id=owner_id)
        await ending.run(reports)
        return ending

    ending = await database.retrying_hot(work)
    if ending.topics:
        notifier.poke(*ending.topics)
    return [
        ReportResult(task_instance_id=report.task_instance_id, state=ending.states.get(report.task_instance_id))
        for report in reports
    ]


class _Ending:
    """The transaction that ends attempts."""

    def __init__(self, database: Database, hot: HotConnection, *, owner_id: int) -> None:
        self._database = database
        self._hot = hot
        self._owner_id = owner_id
        self.states: dict[int, TaskState] = {}
        self.topics: set[str] = set()

    async def run(self, reports: Sequence[AttemptReport]) -> None:
        locked = await run_statements.lock_runs_of_instances(
            self._hot, instance_ids=[report.task_instance_id for report in reports]
        )
        if not locked:
            return
        await plan_for_values(self._hot, rows=len(reports))
        ended = await self._end(reports, locked=locked)
        if not ended:
            return
        self.states = {one.id: one.state for one in ended}
        by_id = {report.task_instance_id: report for report in reports}
        await self._store_results([(one, by_id[one.id].outcome) for one in ended])
        # A slot of the DAG is free again, whatever the outcome.
        self.topics.add("tasks")
        if TaskState.UP_FOR_RETRY in self.states.values():
            self.topics.add("runs")  # the scheduler has a new moment to wait for
        touched = {one.dag_run_id for one in ended}
        advanced = await runs.advance(
            self._database, self._hot, runs=[run for run in locked if run.id in touched], now=locked[0].now
        )
        if advanced.ended:
            self.topics.add("runs")

    async def _end(self, reports: Sequence[AttemptReport], *, locked: Sequence[LockedRun]) -> list[Ended]:
        specs = await self._specs(reports, locked=locked)
        now = locked[0].now
        ends = [_end_of(report, spec=specs.get(report.task_instance_id), now=now) for report in reports]
        ended = await self._end_from(TaskState.RUNNING, ends, now)
        missed = {end.id: end for end in ends}.keys() - {one.id for one in ended}
        if missed:
            # The record of their start may have been overtaken by their end.
            started = await statements.mark_running(
                self._hot,
                owner_id=self._owner_id,
                attempts=[(end.id, end.epoch, None) for end in ends if end.id in missed],
            )
            ended += await self._end_from(TaskState.RUNNING, [end for end in ends if end.id in started], now)
        return ended

    async def _end_from(self, state: TaskState, ends: Sequence[End], now: datetime) -> list[Ended]:
        if not ends:
            return []
        return await statements.end_attempts(self._hot, owner_id=self._owner_id, ends=ends, from_state=state, now=now)

    async def _specs(self, reports: Sequence[AttemptReport], *, locked: Sequence[LockedRun]) -> dict[int, TaskSpec]:
        """Declarations of the tasks that may be retried."""
        failed = [r.task_instance_id for r in reports if isinstance(r.outcome, Failed | Lost)]
        if not failed:
            return {}
        versions = {run.id: run.dag_version_id for run in locked}
        found: dict[int, TaskSpec] = {}
        for instance_id, run_key, task_id in await statements.read_identities(self._hot, instance_ids=failed):
            try:
                version = await versions_of(self._database).get(self._hot, versions[run_key])
            except (UnusableVersion, KeyError):
                continue
            if task_id in version.graph.tasks:
                found[instance_id] = version.graph.tasks[task_id]
        return found

    async def _store_results(self, results: Sequence[tuple[Ended, Outcome | Lost]]) -> None:
        rows = [
            XComRow(dag_run_id=one.dag_run_id, task_id=one.task_id, map_index=one.map_index, key=key, value=value)
            for one, outcome in results
            if not isinstance(outcome, Lost) and one.state is not TaskState.UP_FOR_RETRY
            for key, value in outcome.xcoms.items()
        ]
        if rows:
            await xcoms.upsert_xcoms(self._hot, rows=rows)
        events = [
            _outlet_event(one, event)
            for one, outcome in results
            if isinstance(outcome, Succeeded)
            for event in outcome.outlet_events
        ]
        if not events:
            return
        self.topics.add("demand")
        for answer in await record_outlet_events(self._hot, events=events):
            refusal = getattr(answer, "reason", None)
            if refusal is not None:
                _log.warning("an outlet's event was not made", action="outlet_refused", reason=refusal)


def _outlet_event(one: Ended, event: OutletEvent) -> TaskOutletEvent:
    return TaskOutletEvent(
        asset=event.asset,
        extra=event.extra,
        source_dag_id=one.dag_id,
        source_task_id=one.task_id,
        source_run_id=one.run_id,
        source_map_index=one.map_index,
    )


def _end_of(report: AttemptReport, *, spec: TaskSpec | None, now: datetime) -> End:
    outcome = report.outcome
    end = partial(End, id=report.task_instance_id, epoch=report.epoch)
    if isinstance(outcome, Succeeded):
        return end(state=TaskState.SUCCESS)
    if isinstance(outcome, Skipped):
        return end(state=TaskState.SKIPPED, note=_note(outcome.reason) or None)
    note = _note(outcome.reason if isinstance(outcome, Lost) else outcome.error)
    allowed = isinstance(outcome, Lost) or outcome.retry
    if allowed and spec is not None and may_retry(try_number=report.try_number, max_tries=report.max_tries):
        due = now + timedelta(seconds=_delay(spec, report))
        return end(state=TaskState.UP_FOR_RETRY, next_attempt_at=due, note=note)
    return end(state=TaskState.FAILED, note=note)


def _delay(spec: TaskSpec, report: AttemptReport) -> float:
    return retry_delay(
        spec.retry_delay,
        try_number=report.try_number,
        exponential=spec.retry_exponential_backoff,
        max_delay=spec.max_retry_delay,
        identity=str(report.task_instance_id),
    )


def _note(text: str) -> str:
    """What a text column can hold of a reason."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:_NOTE_LIMIT]


async def requeue_due(database: Database, notifier: Notifier) -> int:
    """Schedule the tasks whose retry delay is over; how many."""
    total = 0
    while True:
        again = await database.retrying_hot(lambda hot: statements.requeue_due(hot, limit=_REQUEUED_AT_ONCE))
        if again:
            notifier.poke("tasks")
        total += len(again)
        if len(again) < _REQUEUED_AT_ONCE:
            return total


async def give_back(
    database: Database, notifier: Notifier, *, owner_id: int, attempts: Sequence[AttemptOrder] | None = None
) -> int:
    """A stopping executor returns what it claimed and has not started (all of it by default); how many."""
    rows = None if attempts is None else [(order.task_instance_id, order.epoch) for order in attempts]
    returned = await database.retrying_hot(lambda hot: statements.give_back(hot, owner_id=owner_id, attempts=rows))
    if returned:
        notifier.poke("tasks")
    return len(returned)


async def fail_lost(database: Database, notifier: Notifier, *, owner_ids: Sequence[int], reason: str) -> int:
    """These owners are gone: what had not started is given back, what ran is retried by its rule; how many ran."""
    async with database.hot() as hot:
        owned = await statements.read_owned(hot, owner_ids=owner_ids)
    total = 0
    for owner_id in sorted({attempt.owner_id for attempt in owned}):
        await give_back(database, notifier, owner_id=owner_id)
        reports = [
            AttemptReport(
                task_instance_id=attempt.id,
                epoch=attempt.epoch,
                try_number=attempt.try_number,
                max_tries=attempt.max_tries,
                outcome=Lost(reason=reason),
            )
            for attempt in owned
            if attempt.owner_id == owner_id and attempt.state is TaskState.RUNNING
        ]
        if reports:
            results = await finish(database, notifier, owner_id=owner_id, reports=reports)
            total += sum(not result.is_stale for result in results)
    return total


async def fail_lost_of_ended(database: Database, notifier: Notifier) -> int:
    """:func:`fail_lost` for every owner whose process is on record as ended."""
    async with database.hot() as hot:
        owners = await statements.read_ended_owners(hot)
    if not owners:
        return 0
    return await fail_lost(database, notifier, owner_ids=owners, reason="its executor ended")


async def pull_xcoms(
    database: Database, *, dag_id: str, run_id: str, task_ids: Sequence[str], key: str, map_index: int | None = None
) -> Sequence[XComRow]:
    """XComs of a run, as canonical texts."""
    async with database.hot() as hot:
        return await xcoms.read_xcoms(
            hot, dag_id=dag_id, run_id=run_id, task_ids=task_ids, key=key, map_index=map_index
        )


async def push_xcoms(database: Database, order: AttemptOrder, values: Mapping[str, str]) -> bool:
    """Store XComs of a running attempt now; False if the attempt is no longer the current one."""

    async def work(hot: HotConnection) -> bool:
        run_key = await statements.read_run_of_attempt(hot, instance_id=order.task_instance_id, epoch=order.epoch)
        if run_key is None:
            return False
        rows = [
            XComRow(dag_run_id=run_key, task_id=order.task_id, map_index=order.map_index, key=key, value=value)
            for key, value in values.items()
        ]
        await xcoms.upsert_xcoms(hot, rows=rows)
        return True

    return await database.retrying_hot(work)
