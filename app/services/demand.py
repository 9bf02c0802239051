"""From demand to runs: every path by which pending events become runs goes through :func:`plan_dag`.

A DAG is planned under its row lock, in one transaction: its pending arrivals are grouped, batches closed, and runs
started as long as ``max_active_runs`` has room. Any number of schedulers may do so at the same time. One DAG that
cannot be planned is told about at that DAG and leaves the others alone.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from app.domain.demand import Batch, OpenBatch, batch_groups, group_arrivals
from app.domain.states import GroupState
from app.kernel.crash_points import CrashPoint, reach
from app.services import runs
from app.services.versions import DagVersion, versions_of
from app.store import demand as statements
from app.store.database import Connection, Database, HotConnection
from app.store.demand import LockedDag, NewGroup, OpenGroup, Situation
from app.store.errors import Conflict, DatabaseUnavailable
from app.store.events import hot_of
from app.store.statement_plans import plan_for_values
from app.store.wakeups import Notifier

#: Most runs started and most groups closed for one DAG before the next one has its turn.
RUNS_PER_TURN = 50
GROUPS_PER_TURN = 1_000
#: How long a turn waits for the row lock of a DAG for which events are being stored all the time, in seconds.
TURN_PATIENCE = 0.2
#: How long a change of a DAG's waiting demand waits for its row lock, in seconds.
LOCK_PATIENCE = 5.0

DELETED = "deleted by a user"
LEFT_SCHEDULE = "its asset is no longer part of the DAG's schedule"


@dataclass(slots=True, kw_only=True)
class PlanRound:
    """What one turn of all DAGs did: ``more`` want another one, ``failed`` cannot be planned, ``busy`` are locked."""

    runs: int = 0
    planned: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What was done for one DAG. ``skipped``: somebody else holds its lock."""

    runs: int = 0
    more: bool = False
    skipped: bool = False


async def plan(database: Database, notifier: Notifier, *, skip: Collection[str] = ()) -> PlanRound:
    """Give every DAG with something to plan or start one turn, except those in ``skip``.

    Raises:
        DatabaseUnavailable: The server is away; nothing half-done remains.
    """
    async with database.glance() as hot:
        candidates = [dag_id for dag_id in await statements.read_candidates(hot) if dag_id not in skip]
    planner = _Planner(database, notifier)
    contended = [dag_id for dag_id in candidates if not await planner.take_turn(dag_id, patience=None)]
    busy = [dag_id for dag_id in contended if not await planner.take_turn(dag_id, patience=TURN_PATIENCE)]
    planner.outcome.busy.extend(busy)
    return planner.outcome


class _Planner:
    """One round over DAGs, each in a transaction of its own."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self.outcome = PlanRound()

    async def take_turn(self, dag_id: str, *, patience: float | None) -> bool:
        """Plan one DAG; False: its lock was taken, try again."""
        try:
            async with self._database.hot() as hot:
                turn = await plan_dag(self._database, hot, dag_id=dag_id, patience=patience)
                if turn.runs:
                    reach(CrashPoint.PLAN_UNCOMMITTED)
        except Conflict:
            return False
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one DAG must not stop the others
            self.outcome.failed[dag_id] = error
            await runs.warn(self._database, dag_id=dag_id, error=error)
            return True
        if turn.skipped:
            return False
        if turn.runs:
            reach(CrashPoint.PLANNED)
            self._notifier.poke("tasks")
        self.outcome.planned.append(dag_id)
        self.outcome.runs += turn.runs
        if turn.more:
            self.outcome.more.append(dag_id)
        return True


async def plan_dag(database: Database, hot: HotConnection, *, dag_id: str, patience: float | None = None) -> Turn:
    """Plan one DAG within the caller's transaction.

    Raises:
        Conflict: The row lock was not to be had within ``patience`` seconds.
        UnusableVersion: The DAG's version cannot be read.
    """
    dag = await statements.lock_dag(hot, dag_id=dag_id, patience=patience)
    if dag is None:
        return Turn(skipped=patience is None)
    if dag.is_paused or not dag.is_active or dag.current_version_id is None:
        return Turn()
    version = await versions_of(database).get(hot, dag.current_version_id)
    situation = await statements.read_situation(hot, dag_id=dag_id)
    grouped = await _group_pending(hot, dag=dag, version=version, situation=situation)
    room = max(dag.max_active_runs - situation.running, 0)
    allowed = min(room, RUNS_PER_TURN)
    started = await runs.start_queued(database, hot, dag=dag, limit=allowed) if situation.queued and allowed else 0
    if not version.instances:
        room, allowed = sys.maxsize, RUNS_PER_TURN  # such a run ends as it starts and takes no room
    made, waiting = 0, situation.ready + grouped.closed > 0
    if waiting and allowed > started:
        limit = allowed - started
        await plan_for_values(hot, rows=min(limit, situation.ready + grouped.closed))
        made, waiting = await runs.start_ready_groups(hot, dag=dag, version=version, limit=limit)
    has_demand = waiting or grouped.unplanned
    if dag.has_demand != has_demand or dag.last_group != grouped.last_group:
        await statements.finish_planning(hot, dag_id=dag_id, last_group=grouped.last_group, has_demand=has_demand)
    if situation.warned:
        await statements.clear_planning_warning(hot, dag_id=dag_id)
    total = started + made
    more = room > total and (has_demand or situation.queued > started)
    return Turn(runs=total, more=more)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grouped:
    """What grouping did: how many groups it closed, the number of the last group, whether some are left for later."""

    closed: int
    last_group: int
    unplanned: bool = False


async def _group_pending(hot: HotConnection, *, dag: LockedDag, version: DagVersion, situation: Situation) -> _Grouped:
    pending = await statements.read_pending(hot, dag_id=dag.dag_id) if dag.has_demand else []
    collecting = situation.collecting
    if not pending and collecting is None:
        return _Grouped(closed=0, last_group=dag.last_group)
    clauses = await _clauses_by_id(hot, version=version) if pending else []
    batches = batch_groups(
        version.spec.schedule.batch,
        group_arrivals(clauses, pending).groups,
        now=dag.now,
        open_batch=OpenBatch(events=collecting.events, closes_at=collecting.closes_at) if collecting else None,
    )
    await plan_for_values(hot, rows=len(pending))
    unplanned = len(batches) > GROUPS_PER_TURN
    batches = batches[:GROUPS_PER_TURN]
    if collecting is not None:
        await _continue_batch(hot, dag_id=dag.dag_id, collecting=collecting, batch=batches[0])
    new = [batch for batch in batches if not batch.continues]
    await _store_batches(hot, dag=dag, batches=new)
    closed = sum(batch.closed for batch in batches)
    return _Grouped(closed=closed, last_group=dag.last_group + len(new), unplanned=unplanned)


async def _clauses_by_id(hot: HotConnection, *, version: DagVersion) -> list[frozenset[int]]:
    known = await statements.read_scheduled_assets(hot, dag_id=version.dag_id)
    return [
        frozenset(known[key.name, key.uri] for key in clause)
        for clause in version.clauses
        if all((key.name, key.uri) in known for key in clause)
    ]


async def _continue_batch(hot: HotConnection, *, dag_id: str, collecting: OpenGroup, batch: Batch[int]) -> None:
    event_ids = _event_ids(batch)
    if not event_ids and not batch.closed:
        return
    added = await statements.extend_group(
        hot, dag_id=dag_id, group_id=collecting.id, event_ids=event_ids, closed=batch.closed
    )
    _expect(added, len(event_ids))


async def _store_batches(hot: HotConnection, *, dag: LockedDag, batches: Sequence[Batch[int]]) -> None:
    if not batches:
        return
    groups = [
        NewGroup(
            position=position,
            state=GroupState.READY if batch.closed else GroupState.COLLECTING,
            closes_at=batch.closes_at,
            event_ids=_event_ids(batch),
        )
        for position, batch in enumerate(batches, start=dag.last_group + 1)
    ]
    stored = await statements.insert_groups(hot, dag_id=dag.dag_id, groups=groups)
    _expect(stored, sum(len(group.event_ids) for group in groups))


def _event_ids(batch: Batch[int]) -> tuple[int, ...]:
    return tuple(arrival.event_id for group in batch.groups for arrival in group.arrivals)


def _expect(found: int, wanted: int) -> None:
    """Somebody changed demand without the DAG's row lock: plan again on what is there now."""
    if found != wanted:
        raise Conflict(f"{wanted} events were to be grouped, {found} were still pending")


async def next_moment(database: Database, *, after: datetime | None) -> tuple[datetime, float | None]:
    """The database's clock, and the seconds to the next thing due by the clock after ``after`` (None: nothing)."""
    async with database.glance() as hot:
        return await statements.read_next_moment(hot, after=after)


async def drop_unscheduled(connection: Connection | HotConnection, dag_id: str, asset_ids: Collection[int]) -> int:
    """A DAG's schedule changed within the caller's transaction: ``asset_ids`` are the assets it is scheduled on now.

    Waiting demand of other assets is dropped, visibly. What stays is grouped anew under the new schedule. Call it for
    each DAG whose condition or batch changed, also when its assets stayed the same. How many events were dropped.
    """
    hot = await hot_of(connection)
    if await statements.lock_dag(hot, dag_id=dag_id, patience=LOCK_PATIENCE) is None:
        return 0
    dropped = await statements.drop_outside(hot, dag_id=dag_id, asset_ids=sorted(asset_ids), reason=LEFT_SCHEDULE)
    await statements.dissolve_groups(hot, dag_id=dag_id)
    await statements.stir(hot, dag_id=dag_id)
    return dropped


async def delete_queued(
    database: Database,
    notifier: Notifier,
    *,
    dag_id: str | None = None,
    asset_id: int | None = None,
    before: datetime | None = None,
) -> int:
    """Delete waiting events of a DAG, of an asset, or of an asset for one DAG; how many that was.

    Exactly that demand goes: what else waited in the same groups is grouped anew.
    """

    async def work(hot: HotConnection) -> int:
        dropped = 0
        dag_ids = [dag_id] if dag_id is not None else await statements.read_waiting_consumers(hot, asset_id=asset_id)
        for one in dag_ids:
            if await statements.lock_dag(hot, dag_id=one, patience=LOCK_PATIENCE) is None:
                continue
            count = await statements.drop_queued(hot, dag_id=one, asset_id=asset_id, before=before, reason=DELETED)
            if count:
                await statements.dissolve_groups(hot, dag_id=one)
                await statements.stir(hot, dag_id=one)
            dropped += count
        return dropped

    dropped = await database.retrying_hot(work)
    if dropped:
        notifier.poke("demand")
    return dropped
