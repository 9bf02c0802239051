"""DAG runs: made from groups, by hand or by the clock; started when there is room; advanced until they end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.domain.json_values import payload_text
from app.domain.runs import Advance, Instance, checked_run_id, make_run_id
from app.domain.runs import advance as advance_run
from app.domain.schedules import Due, next_due
from app.domain.specs import DagSpec, ScheduleKind
from app.domain.states import FINAL_TASK_STATES, RunState, RunType, TaskState
from app.kernel.errors import AlreadyExists, InvalidRequest, NotFound
from app.kernel.ids import short_suffix
from app.services.versions import DagVersion, UnusableVersion, versions_of
from app.store import demand as demand_statements
from app.store import runs as statements
from app.store.database import Database, HotConnection
from app.store.demand import LockedDag
from app.store.errors import Conflict, DatabaseUnavailable
from app.store.runs import LockedRun, MadeRun, NewRun
from app.store.wakeups import Notifier

_ID_ATTEMPTS = 20
#: From the start of a run of a continuous DAG to the start of the next one, at least: tasks that end at once must not
#: fill the database.
CONTINUOUS_PAUSE = timedelta(seconds=1)


async def start_ready_groups(
    hot: HotConnection,
    *,
    dag: LockedDag,
    version: DagVersion,
    limit: int,
    suffix: Callable[[], str] = short_suffix,
) -> tuple[int, bool]:
    """Start a run for each of the first ``limit`` closed groups, under the DAG's row lock.

    How many were started, and whether more are waiting.
    """
    group_ids = await statements.read_ready_groups(hot, dag_id=dag.dag_id, limit=limit + 1)
    chosen = group_ids[:limit]
    if not chosen:
        return 0, False
    state = RunState.RUNNING if version.instances else RunState.SUCCESS
    made = await _insert_group_runs(hot, dag=dag, group_ids=chosen, state=state, suffix=suffix)
    started, caused = await statements.fill_runs(
        hot, dag_id=dag.dag_id, made=made, state=state, instances=version.instances, now=dag.now
    )
    if started != len(chosen) or caused != len(chosen):
        raise Conflict(f"{len(chosen)} groups were to be started, {started} were ready and {caused} had events")
    return len(chosen), len(group_ids) > limit


async def _insert_group_runs(
    hot: HotConnection, *, dag: LockedDag, group_ids: Sequence[int], state: RunState, suffix: Callable[[], str]
) -> list[MadeRun]:
    """Store a run for each group, in order; a run id that is taken is replaced by another one."""
    assert dag.current_version_id is not None
    made: dict[int | None, MadeRun] = {}
    for _ in range(_ID_ATTEMPTS):
        missing = [group_id for group_id in group_ids if group_id not in made]
        if not missing:
            return [made[group_id] for group_id in group_ids]
        new = [
            NewRun(
                run_id=make_run_id(RunType.ASSET_TRIGGERED, dag.now, suffix=suffix()),
                run_type=RunType.ASSET_TRIGGERED,
                triggered_by="asset",
                state=state,
                run_after=dag.now,
                group_id=group_id,
            )
            for group_id in missing
        ]
        stored = await statements.insert_runs(
            hot, dag_id=dag.dag_id, version_id=dag.current_version_id, runs=new, now=dag.now
        )
        made.update((run.group_id, run) for run in stored)
    raise Conflict(f"no free run id was found for DAG {dag.dag_id}")


async def start_queued(database: Database, hot: HotConnection, *, dag: LockedDag, limit: int) -> int:
    """Start runs that wait (made by hand or by the clock), oldest first, under the DAG's row lock; how many."""
    started = await statements.start_queued_runs(hot, dag_id=dag.dag_id, limit=limit, now=dag.now)
    if started:
        await advance(database, hot, runs=await statements.lock_runs(hot, run_keys=started), now=dag.now)
    return len(started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What advancing runs did: instances that became ready, and runs that ended."""

    scheduled: int
    ended: tuple[int, ...]


async def advance(database: Database, hot: HotConnection, *, runs: Sequence[LockedRun], now: datetime) -> Advanced:
    """Decide what follows from the states of the runs' task instances, under the runs' row locks."""
    active = [run for run in runs if run.state is RunState.RUNNING]
    if not active:
        return Advanced(scheduled=0, ended=())
    instances = await statements.read_instances(hot, run_keys=[run.id for run in active])
    moves: list[tuple[int, TaskState, str]] = []
    ends: list[tuple[int, RunState]] = []
    for run in active:
        result = await _decide(database, hot, run=run, instances=instances[run.id])
        moves.extend(result.moves)
        if result.end is not None:
            ends.append((run.id, result.end))
    if moves:
        await statements.move_instances(hot, moves=moves, now=now)
    ended = await statements.end_runs(hot, ends=ends, now=now) if ends else []
    await _go_on_continuously(database, hot, runs=[run for run in active if run.id in ended], now=now)
    scheduled = sum(state is TaskState.SCHEDULED for _, state, _ in moves)
    return Advanced(scheduled=scheduled, ended=tuple(ended))


async def _decide(database: Database, hot: HotConnection, *, run: LockedRun, instances: Sequence[Instance]) -> Advance:
    try:
        version = await versions_of(database).get(hot, run.dag_version_id)
    except UnusableVersion as error:
        # Nothing more can be started; the run fails once what works has ended.
        waiting = [one.id for one in instances if one.state is TaskState.NONE]
        working = any(one.state not in FINAL_TASK_STATES and one.state is not TaskState.NONE for one in instances)
        moves = tuple((instance_id, TaskState.REMOVED, str(error)) for instance_id in waiting)
        return Advance(moves=moves, end=None if working else RunState.FAILED)
    return advance_run(version.graph, instances)


async def _go_on_continuously(
    database: Database, hot: HotConnection, *, runs: Sequence[LockedRun], now: datetime
) -> None:
    for run in runs:
        if run.run_type != RunType.SCHEDULED:
            continue
        version = versions_of(database).known(run.dag_version_id)
        if version is not None and version.spec.schedule.kind is ScheduleKind.CONTINUOUS:
            moment = max(now, (run.start_date or now) + CONTINUOUS_PAUSE)
            await statements.set_next_run(hot, dag_id=run.dag_id, claimed=None, due=(moment, moment))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualRun:
    """What a person asks for. ``run_id`` None makes one; ``run_after`` None means at once."""

    dag_id: str
    triggered_by: str
    run_id: str | None = None
    logical_date: datetime | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    run_after: datetime | None = None
    conf: Mapping[str, Any] | None = None
    note: str | None = None
    user: str | None = None


async def create_manual(database: Database, notifier: Notifier, request: ManualRun) -> MadeRun:
    """Make a run by hand. It is queued, and started by a scheduler as soon as pause and ``max_active_runs`` allow.

    Raises:
        NotFound: There is no such DAG.
        InvalidRequest: The run id can be no run's.
        PayloadRefused: ``conf`` is no JSON or too deep.
        TooLarge: ``conf`` is too large.
        AlreadyExists: The DAG has a run of this id or logical date.
        UnusableVersion: The DAG's version cannot be read.
    """
    if request.run_id is not None:
        try:
            checked_run_id(request.run_id)
        except ValueError as error:
            raise InvalidRequest(reason=str(error)) from error
    conf = payload_text(dict(request.conf or {}), what="conf")
    made = await database.retrying_hot(lambda hot: _create_manual(database, hot, request, conf=conf))
    notifier.poke("runs")
    return made


async def _create_manual(database: Database, hot: HotConnection, request: ManualRun, *, conf: str) -> MadeRun:
    dag = await demand_statements.lock_dag(hot, dag_id=request.dag_id, patience=5.0)
    if dag is None or dag.current_version_id is None or not dag.is_active:
        raise NotFound(what=f"DAG {request.dag_id!r}")
    run_after = request.run_after or dag.now
    run_id = request.run_id or make_run_id(
        RunType.MANUAL, request.logical_date or run_after, suffix=None if request.logical_date else short_suffix()
    )
    taken = await statements.is_run_taken(hot, dag_id=dag.dag_id, run_id=run_id, logical_date=request.logical_date)
    if taken is not None:
        raise AlreadyExists(what=f"DAG run {taken!r} of DAG {dag.dag_id!r}")
    new = NewRun(
        run_id=run_id,
        run_type=RunType.MANUAL,
        triggered_by=request.triggered_by,
        state=RunState.QUEUED,
        run_after=run_after,
        logical_date=request.logical_date,
        data_interval_start=request.data_interval_start or request.logical_date,
        data_interval_end=request.data_interval_end or request.logical_date,
        conf=conf,
        note=request.note,
        user=request.user,
    )
    made = await _insert_queued(database, hot, dag=dag, new=new)
    if made is None:
        raise AlreadyExists(what=f"DAG run {run_id!r} of DAG {dag.dag_id!r}")
    return made


async def _insert_queued(database: Database, hot: HotConnection, *, dag: LockedDag, new: NewRun) -> MadeRun | None:
    assert dag.current_version_id is not None
    version = await versions_of(database).get(hot, dag.current_version_id)
    stored = await statements.insert_runs(hot, dag_id=dag.dag_id, version_id=version.id, runs=[new], now=dag.now)
    if not stored:
        return None
    await statements.fill_runs(
        hot, dag_id=dag.dag_id, made=stored, state=RunState.QUEUED, instances=version.unstarted, now=dag.now
    )
    return stored[0]


@dataclass(slots=True, kw_only=True)
class DueRound:
    """What a look at the time schedules did. ``failed``: DAGs whose next run cannot be made."""

    runs: int
    failed: dict[str, Exception]


async def create_due(database: Database, notifier: Notifier, *, skip: Collection[str] = ()) -> DueRound:
    """Make the runs that are due by the clock, except those of DAGs in ``skip``.

    Each is claimed once, by replacing the DAG's next moment under its row lock.

    A DAG at its limit of active runs is left until one ends.
    """
    async with database.glance() as hot:
        due = [dag_id for dag_id in await statements.read_due_dags(hot) if dag_id not in skip]
    outcome = DueRound(runs=0, failed={})
    for dag_id in due:
        try:
            async with database.hot() as hot:
                outcome.runs += await _create_due(database, hot, dag_id=dag_id)
        except Conflict:
            continue
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one DAG's schedule must not stop the others
            outcome.failed[dag_id] = error
            await warn(database, dag_id=dag_id, error=error)
    if outcome.runs:
        notifier.poke("runs")
    return outcome


async def warn(database: Database, *, dag_id: str, error: Exception) -> None:
    """Show at the DAG why no run of it can be made; the next one that is made takes the warning away."""
    message = f"{type(error).__name__}: {error}".replace("\0", "")[:4000]
    async with database.hot() as hot:
        await demand_statements.set_planning_warning(hot, dag_id=dag_id, message=message)


async def _create_due(database: Database, hot: HotConnection, *, dag_id: str) -> int:
    dag = await demand_statements.lock_dag(hot, dag_id=dag_id, patience=None)
    if dag is None or dag.is_paused or not dag.is_active or dag.current_version_id is None:
        return 0
    if dag.next_run_at is None or dag.next_run_at > dag.now:
        return 0
    situation = await demand_statements.read_situation(hot, dag_id=dag_id)
    if situation.running + situation.queued >= dag.max_active_runs:
        return 0
    version = await versions_of(database).get(hot, dag.current_version_id)
    logical_date = dag.next_logical_date or dag.next_run_at
    following = _following(version.spec, now=dag.now, last=logical_date)
    await statements.set_next_run(
        hot,
        dag_id=dag_id,
        claimed=dag.next_run_at,
        due=(following.run_at, following.logical_date) if following else None,
    )
    new = NewRun(
        run_id=make_run_id(RunType.SCHEDULED, logical_date),
        run_type=RunType.SCHEDULED,
        triggered_by="timetable",
        state=RunState.QUEUED,
        run_after=dag.next_run_at,
        logical_date=logical_date,
        data_interval_start=logical_date,
        data_interval_end=logical_date,
    )
    # A run of this logical date may exist already, after the schedule was edited back and forth.
    return int(await _insert_queued(database, hot, dag=dag, new=new) is not None)


def _following(spec: DagSpec, *, now: datetime, last: datetime) -> Due | None:
    if spec.schedule.kind is ScheduleKind.CONTINUOUS:
        return None  # the end of the run sets it
    return next_due(
        spec.schedule,
        now=now,
        last=last,
        start=_moment(spec.start_date),
        end=_moment(spec.end_date),
        catchup=spec.catchup,
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
