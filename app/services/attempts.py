"""Claimed task instances as the orders that executors carry out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from app.domain.orders import AttemptOrder, EventValue, RunValue
from app.domain.specs import AssetKey
from app.domain.states import TaskState
from app.kernel.telemetry import get_logger
from app.services.versions import DagVersion, UnusableVersion, versions_of
from app.store import tasks as statements
from app.store.database import Database, HotConnection
from app.store.tasks import CauseRow, ClaimedInstance, End

_log = get_logger("tasks")


async def orders_of(
    database: Database, hot: HotConnection, *, owner_id: int, claimed: Sequence[ClaimedInstance]
) -> list[AttemptOrder]:
    """The orders for instances just claimed by this owner, in order, with few queries for all of them.

    An instance whose DAG version cannot be read fails here and has no order.
    """
    versions: dict[int, DagVersion] = {}
    broken: dict[int, str] = {}
    for version_id in {one.dag_version_id for one in claimed}:
        try:
            versions[version_id] = await versions_of(database).get(hot, version_id)
        except UnusableVersion as error:
            broken[version_id] = str(error)
    await _fail(hot, owner_id=owner_id, instances=[one for one in claimed if one.dag_version_id in broken], why=broken)
    usable = [one for one in claimed if one.dag_version_id in versions and _spec(versions, one) is not None]
    causes = await _causes(hot, usable)
    below = sorted({one.dag_run_id for one in usable if _upstream(versions, one)})
    states = await statements.read_states(hot, run_keys=below) if below else {}
    runs = {one.dag_run_id: _run_value(one, causes.get(one.dag_run_id, ())) for one in usable}
    return [
        _order(one, version=versions[one.dag_version_id], run=runs[one.dag_run_id], states=states) for one in usable
    ]


def _spec(versions: Mapping[int, DagVersion], one: ClaimedInstance) -> object:
    return versions[one.dag_version_id].graph.tasks.get(one.task_id)


def _upstream(versions: Mapping[int, DagVersion], one: ClaimedInstance) -> tuple[str, ...]:
    return versions[one.dag_version_id].graph.tasks[one.task_id].upstream


async def _causes(hot: HotConnection, claimed: Sequence[ClaimedInstance]) -> dict[int, tuple[EventValue, ...]]:
    caused = sorted({one.dag_run_id for one in claimed if one.run_type == "asset_triggered"})
    rows = await statements.read_causes(hot, run_keys=caused) if caused else {}
    return {run_key: tuple(_event_value(row) for row in causes) for run_key, causes in rows.items()}


def _event_value(row: CauseRow) -> EventValue:
    extra: dict[str, Any] = msgspec.json.decode(row.extra)
    return EventValue(
        id=row.event_id,
        asset=AssetKey(name=row.name, uri=row.uri),
        extra=extra,
        timestamp=row.timestamp.isoformat(),
        source_dag_id=row.source_dag_id,
        source_task_id=row.source_task_id,
        source_run_id=row.source_run_id,
        source_map_index=row.source_map_index,
    )


def _run_value(one: ClaimedInstance, causes: Sequence[EventValue]) -> RunValue:
    return RunValue(
        dag_id=one.dag_id,
        run_id=one.run_id,
        run_type=one.run_type,
        run_after=one.run_after.isoformat(),
        logical_date=_iso(one.logical_date),
        data_interval_start=_iso(one.data_interval_start),
        data_interval_end=_iso(one.data_interval_end),
        start_date=_iso(one.start_date),
        conf=msgspec.json.decode(one.conf),
        triggering_asset_events=tuple(causes),
    )


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _order(
    one: ClaimedInstance, *, version: DagVersion, run: RunValue, states: Mapping[int, Mapping[str, str]]
) -> AttemptOrder:
    task = version.graph.tasks[one.task_id]
    known = states.get(one.dag_run_id, {})
    return AttemptOrder(
        task_instance_id=one.id,
        epoch=one.epoch,
        task_id=one.task_id,
        map_index=one.map_index,
        try_number=one.try_number,
        max_tries=one.max_tries,
        run=run,
        bundle_digest=version.bundle_digest,
        entry=version.entry,
        execution_timeout=task.execution_timeout,
        upstream_states={name: known[name] for name in task.upstream if name in known},
    )


async def _fail(
    hot: HotConnection, *, owner_id: int, instances: Sequence[ClaimedInstance], why: Mapping[int, str]
) -> None:
    if not instances:
        return
    ends = [
        End(id=one.id, epoch=one.epoch, state=TaskState.FAILED, note=why[one.dag_version_id][:2000])
        for one in instances
    ]
    now: datetime = await hot.fetchval("SELECT now()")
    await statements.end_attempts(hot, owner_id=owner_id, ends=ends, from_state=TaskState.QUEUED, now=now)
    for one in instances:
        _log.error(
            "a task cannot run because its DAG version cannot be read",
            action="version_unusable",
            dag_id=one.dag_id,
            run_id=one.run_id,
            task_id=one.task_id,
        )
