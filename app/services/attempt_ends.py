"""What follows from the ends of attempts: the transaction behind :func:`app.services.tasks.finish`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from app.domain.orders import AttemptOrder, Failed, Outcome, OutletEvent, Skipped, Succeeded
from app.domain.retries import may_retry, retry_delay
from app.domain.specs import TaskSpec
from app.domain.states import TaskState
from app.kernel.telemetry import get_logger
from app.services import runs
from app.services.events import TaskOutletEvent, record_outlet_events
from app.services.versions import UnusableVersion, versions_of
from app.store import runs as run_statements
from app.store import tasks as statements
from app.store import xcoms
from app.store.database import Database, HotConnection
from app.store.runs import LockedRun
from app.store.statement_plans import plan_for_values
from app.store.tasks import End, Ended
from app.store.xcoms import XComRow

_log = get_logger("tasks")
_NOTE_LIMIT = 2_000
#: How often an attempt may be lost before it starts without using up a try.
_MOST_GIVE_BACKS = 10


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


class Ending:
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
        self.states.update({one.id: one.state for one in ended})
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
        missed = {end.id for end in ends} - {one.id for one in ended}
        missed -= await self._give_back([report for report in reports if report.task_instance_id in missed])
        if missed:
            # The record of their start may have been overtaken by their end.
            started = await statements.mark_running(
                self._hot,
                owner_id=self._owner_id,
                attempts=[(end.id, end.epoch, None) for end in ends if end.id in missed],
            )
            ended += await self._end_from(TaskState.RUNNING, [end for end in ends if end.id in started], now)
        return ended

    async def _give_back(self, reports: Sequence[AttemptReport]) -> set[int]:
        """Return attempts that were lost before they started: that costs them no try, within reason."""
        unstarted = [
            (report.task_instance_id, report.epoch)
            for report in reports
            if isinstance(report.outcome, Lost) and report.epoch - report.try_number < _MOST_GIVE_BACKS
        ]
        if not unstarted:
            return set()
        returned = await statements.give_back(self._hot, owner_id=self._owner_id, attempts=unstarted)
        self.states.update(dict.fromkeys(returned, TaskState.SCHEDULED))
        if returned:
            self.topics.add("tasks")
        return set(returned)

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
