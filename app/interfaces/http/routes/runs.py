"""DAG runs and what caused them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel

from app.domain.states import RunState, RunType
from app.interfaces.http.dependencies import Caller, HostOf, PageOf
from app.interfaces.http.schemas.assets import EventAnswer, EventList
from app.interfaces.http.schemas.base import Moment
from app.interfaces.http.schemas.runs import RunAnswer, RunBody, RunList
from app.interfaces.http.shapes import shaped_event, shaped_run
from app.kernel.errors import NotFound
from app.services import runs
from app.services.runs import ManualRun
from app.store.listings import events as listed_events
from app.store.listings import runs as listed
from app.store.listings.dags import read_dag

router = APIRouter(prefix="/dags/{dag_id}/dagRuns", tags=["DagRun"])
ANY = "~"
_MOMENTS = ("run_after", "logical_date", "start_date", "end_date")
_COMPARISONS = ("gte", "gt", "lte", "lt")


class Bounds(BaseModel):
    """Bounds on moments of a run."""

    run_after_gte: Moment | None = None
    run_after_gt: Moment | None = None
    run_after_lte: Moment | None = None
    run_after_lt: Moment | None = None
    logical_date_gte: Moment | None = None
    logical_date_gt: Moment | None = None
    logical_date_lte: Moment | None = None
    logical_date_lt: Moment | None = None
    start_date_gte: Moment | None = None
    start_date_gt: Moment | None = None
    start_date_lte: Moment | None = None
    start_date_lt: Moment | None = None
    end_date_gte: Moment | None = None
    end_date_gt: Moment | None = None
    end_date_lte: Moment | None = None
    end_date_lt: Moment | None = None

    def given(self) -> list[tuple[str, str, datetime]]:
        """Moment of the run, comparison, bound."""
        every = [(name, comparison) for name in _MOMENTS for comparison in _COMPARISONS]
        found = [(name, comparison, getattr(self, f"{name}_{comparison}")) for name, comparison in every]
        return [(name, comparison, bound) for name, comparison, bound in found if bound is not None]


@router.get("")
async def get_runs(
    host: HostOf,
    page: PageOf,
    dag_id: str,
    bounds: Annotated[Bounds, Depends()],
    state: Annotated[list[RunState] | None, Query()] = None,
    run_type: Annotated[list[RunType] | None, Query()] = None,
    run_id_pattern: str | None = None,
) -> RunList:
    """List the runs of a DAG; ``~`` lists those of all."""
    async with host.database.transaction() as connection:
        found = await listed.list_runs(
            connection,
            page,
            dag_id=None if dag_id == ANY else dag_id,
            states=state or (),
            run_types=run_type or (),
            run_id_pattern=run_id_pattern,
            bounds=bounds.given(),
        )
        if not found.total and dag_id != ANY and await read_dag(connection, dag_id) is None:
            raise NotFound(what=f"DAG {dag_id!r}")
    return RunList(
        dag_runs=[RunAnswer.model_validate(shaped_run(row)) for row in found.rows], total_entries=found.total
    )


@router.post("")
async def post_run(host: HostOf, dag_id: str, body: RunBody, user: Caller) -> RunAnswer:
    """Make a run by hand."""
    request = ManualRun(
        dag_id=dag_id,
        triggered_by="rest_api",
        run_id=body.dag_run_id,
        logical_date=body.logical_date,
        data_interval_start=body.data_interval_start,
        data_interval_end=body.data_interval_end,
        run_after=body.run_after,
        conf=body.conf,
        note=body.note,
        user=user,
    )
    made = await runs.create_manual(host.database, host.notifier, request)
    return RunAnswer.model_validate(shaped_run(await the_run(host, dag_id, made.run_id)))


@router.get("/{run_id}")
async def get_run(host: HostOf, dag_id: str, run_id: str) -> RunAnswer:
    """One run."""
    return RunAnswer.model_validate(shaped_run(await the_run(host, dag_id, run_id)))


@router.get("/{run_id}/upstreamAssetEvents")
async def get_causes(host: HostOf, dag_id: str, run_id: str) -> EventList:
    """The events that caused a run, in order."""
    run = await the_run(host, dag_id, run_id)
    async with host.database.transaction() as connection:
        rows = await listed_events.events_of_run(connection, run["id"])
    return EventList(
        asset_events=[EventAnswer.model_validate(shaped_event(row)) for row in rows], total_entries=len(rows)
    )


async def the_run(host: HostOf, dag_id: str, run_id: str) -> Mapping[str, Any]:
    """The row of a run; raises :class:`NotFound`."""
    async with host.database.transaction() as connection:
        found = await listed.read_run(connection, dag_id, run_id)
    if found is None:
        raise NotFound(what=f"run {run_id!r} of DAG {dag_id!r}")
    return found
