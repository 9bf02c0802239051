"""One run of one DAG in this process, without services: for ``dags test`` and ``DAG.test()``.

Tasks run one after the other, in the order of their edges, by their trigger rules, retries and XComs; a retry waits at
most :data:`LONGEST_WAIT` seconds. Connections and variables come from the environment. Nothing is stored.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

from app.domain.json_values import NotJson, json_object
from app.domain.orders import (
    AttemptOrder,
    EventValue,
    Failed,
    Outcome,
    OutletEvent,
    RunValue,
    Skipped,
    Succeeded,
)
from app.domain.retries import may_retry
from app.domain.specs import AssetKey
from app.domain.states import RunState, RunType, TaskState
from app.domain.trigger_rules import Decision, decide
from app.sdk.assets import Asset
from app.sdk.dag import DAG
from app.sdk.errors import DeclarationError, PipelineError
from app.sdk.execution import execute
from app.sdk.loader import describe, load_pipeline
from app.sdk.operators.base import BaseOperator
from app.sdk.schedules import schedule_assets
from app.sdk.xcom_values import decode_xcom

LONGEST_WAIT = 1.0
#: One event or several, each the ``extra`` of an event of every asset of the schedule, or naming one asset.
Events: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
_log = logging.getLogger("tidegate.local_run")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTask:
    """How one task ended."""

    task_id: str
    state: TaskState
    tries: int = 0
    error: str | None = None
    xcoms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRunResult:
    """How the run ended, and what it made. ``outlet_events`` are in the order of the tasks."""

    dag_id: str
    run_id: str
    state: RunState
    tasks: Mapping[str, LocalTask]
    outlet_events: tuple[OutletEvent, ...] = ()
    duration: float = 0.0


def run_dag_locally(
    file: str | Path,
    dag_id: str | None = None,
    *,
    root: str | Path | None = None,
    event: Events | None = None,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    say: Callable[[str], object] | None = None,
) -> LocalRunResult:
    """Load ``file`` (below the pipelines folder ``root``, by default its own folder) and run one of its DAGs.

    ``dag_id`` may be left out if the file has only one. ``event`` is the ``extra`` of an event of each asset of the
    DAG's schedule, the cause of the run; give ``{"asset": name or uri, "extra": {…}}`` for one asset only, and a
    list for several events. ``say`` gets each line of the log; by default they go to standard output. The file's
    warnings are logged first.

    Raises :class:`PipelineError` for a file that a deployment would refuse, :class:`DeclarationError` for a DAG or
    event that does not fit.
    """
    path = Path(file).resolve()
    folder = Path(root).resolve() if root is not None else path.parent
    loaded = load_pipeline(folder, str(path.relative_to(folder)))
    try:
        dags = loaded.require().dags
        described = describe(loaded)
        if described.error is not None:
            raise PipelineError(described.error)
        with _log_to(say):
            for text in described.warnings:
                _log.warning("%s", text)
        if dag_id is None and len(dags) != 1:
            known = ", ".join(dags) or "none"
            raise DeclarationError(f"{path.name} has {len(dags)} DAGs ({known}); name one")
        dag = loaded.dag(dag_id if dag_id is not None else next(iter(dags)))
        return run_declared_dag(dag, event=event, conf=conf or {}, logical_date=logical_date, say=say)
    finally:
        loaded.unload()


def run_declared_dag(
    dag: DAG,
    *,
    event: Events | None = None,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    say: Callable[[str], object] | None = None,
) -> LocalRunResult:
    """Run ``dag`` once; see :func:`run_dag_locally`."""
    order = dag.topological_sort()
    run = _run_value(dag, event=event, conf=conf or {}, logical_date=logical_date)
    local = _LocalRun(dag, run)
    started = time.perf_counter()
    with _log_to(say):
        for task in order:
            local.run_task(task)
    leaves = [local.tasks[task.task_id].state for task in order if not task.downstream_task_ids]
    bad = {TaskState.FAILED, TaskState.UPSTREAM_FAILED}
    return LocalRunResult(
        dag_id=dag.dag_id,
        run_id=run.run_id,
        state=RunState.FAILED if bad & set(leaves) else RunState.SUCCESS,
        tasks=local.tasks,
        outlet_events=tuple(local.outlet_events),
        duration=time.perf_counter() - started,
    )


class _LocalRun:
    """The state of a run in memory; also the tasks' gateway."""

    def __init__(self, dag: DAG, run: RunValue) -> None:
        self.dag = dag
        self.run = run
        self.tasks: dict[str, LocalTask] = {}
        self.outlet_events: list[OutletEvent] = []
        self._xcoms: dict[tuple[str, str], str] = {}

    def xcom_pull(self, *, task_ids: list[str], key: str) -> list[tuple[str, str]]:
        return [(task_id, self._xcoms[task_id, key]) for task_id in task_ids if (task_id, key) in self._xcoms]

    def inlet_events(
        self,
        asset: AssetKey,
        *,
        after: str | None = None,
        before: str | None = None,
        ascending: bool = True,
        limit: int | None = None,
    ) -> list[EventValue]:
        found = [
            event
            for event in self.run.triggering_asset_events
            if event.asset == asset
            and (after is None or event.timestamp >= after)
            and (before is None or event.timestamp < before)
        ]
        return (found if ascending else found[::-1])[:limit]

    def run_task(self, task: BaseOperator) -> None:
        """Decide ``task`` by its rule, run it with its tries, and keep how it ended."""
        states = {task_id: self.tasks[task_id].state for task_id in task.upstream_task_ids}
        decision = decide(task.trigger_rule, states.values())
        if decision is not Decision.READY:
            self._end(task, TaskState.SKIPPED if decision is Decision.SKIPPED else TaskState.UPSTREAM_FAILED)
            return
        try_number, outcome = 0, None
        while outcome is None or (
            isinstance(outcome, Failed) and outcome.retry and may_retry(try_number=try_number, max_tries=task.retries)
        ):
            if outcome is not None:
                time.sleep(min(task.retry_delay.total_seconds(), LONGEST_WAIT))
            try_number += 1
            outcome = execute(self.dag, self._order(task, try_number, states), self)
        self._finish(task, outcome, try_number)

    def _order(self, task: BaseOperator, try_number: int, states: Mapping[str, TaskState]) -> AttemptOrder:
        _log.info("task %s: try %d", task.task_id, try_number)
        return AttemptOrder(
            task_instance_id=0,
            epoch=0,
            task_id=task.task_id,
            map_index=-1,
            try_number=try_number,
            max_tries=task.retries,
            run=self.run,
            bundle_digest="",
            entry="",
            execution_timeout=None if task.execution_timeout is None else task.execution_timeout.total_seconds(),
            upstream_states={task_id: str(state) for task_id, state in states.items()},
        )

    def _finish(self, task: BaseOperator, outcome: Outcome, tries: int) -> None:
        self._xcoms.update({(task.task_id, key): text for key, text in outcome.xcoms.items()})
        match outcome:
            case Succeeded(outlet_events=events):
                self.outlet_events.extend(events)
                self._end(task, TaskState.SUCCESS, outcome, tries=tries)
            case Skipped():
                self._end(task, TaskState.SKIPPED, outcome, tries=tries)
            case Failed(error=error):
                self._end(task, TaskState.FAILED, outcome, tries=tries, error=error)

    def _end(
        self,
        task: BaseOperator,
        state: TaskState,
        outcome: Outcome | None = None,
        *,
        tries: int = 0,
        error: str | None = None,
    ) -> None:
        _log.info("task %s: %s", task.task_id, state)
        xcoms = {} if outcome is None else {key: decode_xcom(text) for key, text in outcome.xcoms.items()}
        self.tasks[task.task_id] = LocalTask(task_id=task.task_id, state=state, tries=tries, error=error, xcoms=xcoms)


def _run_value(dag: DAG, *, event: Events | None, conf: Mapping[str, Any], logical_date: datetime | None) -> RunValue:
    now = datetime.now(UTC)  # the clock is the author's own: nothing here is compared with another machine's
    moment = None if logical_date is None else logical_date.isoformat()
    causes = () if event is None else _causes(dag, event, now)
    kind = RunType.ASSET_TRIGGERED if causes else RunType.MANUAL
    if moment is None and not causes and not schedule_assets(dag.schedule):
        moment = now.isoformat()
    return RunValue(
        dag_id=dag.dag_id,
        run_id=f"{kind}__{now.isoformat()}_{uuid4().hex[:8]}",
        run_type=str(kind),
        run_after=now.isoformat(),
        logical_date=moment,
        data_interval_start=moment,
        data_interval_end=moment,
        start_date=now.isoformat(),
        conf=json_object(conf, "conf"),
        triggering_asset_events=causes,
    )


def _causes(dag: DAG, event: Events, now: datetime) -> tuple[EventValue, ...]:
    if not schedule_assets(dag.schedule):
        raise DeclarationError(f"DAG {dag.dag_id!r} is not scheduled on assets, so that no event starts it")
    described = [event] if isinstance(event, Mapping) else list(event)
    pairs = [pair for one in described for pair in _assets_and_extra(dag, one)]
    return tuple(
        EventValue(id=number, asset=asset.key, extra=extra, timestamp=now.isoformat())
        for number, (asset, extra) in enumerate(pairs, start=1)
    )


def _assets_and_extra(dag: DAG, event: Mapping[str, Any]) -> list[tuple[Asset, dict[str, Any]]]:
    assets = schedule_assets(dag.schedule)
    if event.keys() != {"asset", "extra"}:
        return [(asset, _object(event, "event")) for asset in assets]
    wanted = event["asset"]
    named = [asset for asset in assets if wanted in {asset.name, asset.uri}]
    if not named:
        raise DeclarationError(f"DAG {dag.dag_id!r} is not scheduled on an asset {wanted!r}")
    return [(asset, _object(event["extra"], "event.extra")) for asset in named]


def _object(value: Any, place: str) -> dict[str, Any]:
    try:
        return json_object(value, place)
    except NotJson as refusal:
        raise DeclarationError(str(refusal)) from None


@contextlib.contextmanager
def _log_to(say: Callable[[str], object] | None) -> Iterator[None]:
    """Write what tasks log as readable lines; what they print goes to standard output as it is."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = self.format(record)
            if say is not None:
                say(line)
            else:
                sys.stdout.write(f"{line}\n")

    handler = Lines()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
