"""DAG runs, task instances, logs and XComs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AwareDatetime, BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.states import RunState, RunType, TaskState
from app.interfaces.http.dependencies import Caller, HostOf, PageOf
from app.interfaces.http.logs import read_lines
from app.interfaces.http.schemas import (
    EventList,
    LogAnswer,
    RunAnswer,
    RunBody,
    RunList,
    TaskInstanceAnswer,
    TaskInstanceList,
    XComList,
    XComValue,
)
from app.interfaces.http.shapes import shaped_run, shaped_task, shaped_xcom
from app.kernel.errors import NotFound
from app.services import runs
from app.services.runs import ManualRun
from app.store.listings import events as listed_events
from app.store.listings import runs as listed
from app.store.listings.dags import read_dag

router = APIRouter(prefix="/dags/{dag_id}/dagRuns")
MapIndex = Annotated[int, Query(ge=-1, lt=2**31)]


class Bounds(BaseModel):
    """Inclusive bounds on moments of a run."""

    run_after_gte: AwareDatetime | None = None
    run_after_lte: AwareDatetime | None = None
    logical_date_gte: AwareDatetime | None = None
    logical_date_lte: AwareDatetime | None = None
    start_date_gte: AwareDatetime | None = None
    start_date_lte: AwareDatetime | None = None
    end_date_gte: AwareDatetime | None = None
    end_date_lte: AwareDatetime | None = None

    def pairs(self) -> dict[str, tuple[datetime | None, datetime | None]]:
        """Lower and upper bound by moment."""
        names = ("run_after", "logical_date", "start_date", "end_date")
        return {name: (getattr(self, f"{name}_gte"), getattr(self, f"{name}_lte")) for name in names}


@router.get("", tags=["DagRun"])
async def get_runs(
    host: HostOf,
    page: PageOf,
    dag_id: str,
    _caller: Caller,
    bounds: Annotated[Bounds, Query()],
    state: Annotated[list[RunState] | None, Query()] = None,
    run_type: Annotated[list[RunType] | None, Query()] = None,
    run_id_pattern: str | None = None,
) -> RunList:
    """List the runs of a DAG; ``~`` lists those of all."""
    async with host.database.transaction() as connection:
        found = await listed.list_runs(
            connection,
            page,
            dag_id=None if dag_id == "~" else dag_id,
            states=state or (),
            run_types=run_type or (),
            run_id_pattern=run_id_pattern,
            bounds=bounds.pairs(),
        )
        if not found.total and dag_id != "~":
            await _require_dag(connection, dag_id)
    return RunList.model_validate({"dag_runs": [shaped_run(row) for row in found.rows], "total_entries": found.total})


@router.post("", tags=["DagRun"])
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
    return RunAnswer.model_validate(shaped_run(await _run(host, dag_id, made.run_id)))


@router.get("/{run_id}", tags=["DagRun"])
async def get_run(host: HostOf, dag_id: str, run_id: str, _caller: Caller) -> RunAnswer:
    """One run."""
    return RunAnswer.model_validate(shaped_run(await _run(host, dag_id, run_id)))


@router.get("/{run_id}/upstreamAssetEvents", tags=["DagRun"])
async def get_causes(host: HostOf, dag_id: str, run_id: str, _caller: Caller) -> EventList:
    """The events that caused a run, in order."""
    run = await _run(host, dag_id, run_id)
    async with host.database.transaction() as connection:
        rows = await listed_events.events_of_run(connection, run["id"])
    return EventList.model_validate({"asset_events": rows, "total_entries": len(rows)})


@router.get("/{run_id}/taskInstances", tags=["Task Instance"])
async def get_tasks(
    host: HostOf,
    page: PageOf,
    dag_id: str,
    run_id: str,
    _caller: Caller,
    state: Annotated[list[TaskState] | None, Query()] = None,
    task_id: str | None = None,
) -> TaskInstanceList:
    """List the task instances of a run; ``~`` stands for every DAG or run."""
    if "~" not in (dag_id, run_id):
        await _run(host, dag_id, run_id)
    async with host.database.transaction() as connection:
        found = await listed.list_tasks(
            connection,
            page,
            dag_id=None if dag_id == "~" else dag_id,
            run_id=None if run_id == "~" else run_id,
            task_id=task_id,
            states=state or (),
        )
    rows = [shaped_task(row) for row in found.rows]
    return TaskInstanceList.model_validate({"task_instances": rows, "total_entries": found.total})


@router.get("/{run_id}/taskInstances/{task_id}", tags=["Task Instance"])
async def get_task(host: HostOf, dag_id: str, run_id: str, task_id: str, _caller: Caller) -> TaskInstanceAnswer:
    """One task instance."""
    return TaskInstanceAnswer.model_validate(shaped_task(await _task(host, dag_id, run_id, task_id=task_id)))


@router.get("/{run_id}/taskInstances/{task_id}/logs/{try_number}", tags=["Task Instance"], response_model=LogAnswer)
async def get_log(
    request: Request,
    host: HostOf,
    dag_id: str,
    run_id: str,
    task_id: str,
    try_number: Annotated[int, Path(ge=0, lt=2**31)],
    _caller: Caller,
    map_index: MapIndex = -1,
) -> Any:
    """The log of one attempt: JSON, text, or NDJSON by the ``Accept`` header."""
    await _task(host, dag_id, run_id, task_id=task_id, map_index=map_index)
    lines = await read_lines(host.settings, dag_id, run_id, task_id=task_id, map_index=map_index, attempt=try_number)
    wanted = request.headers.get("accept", "")
    if "application/x-ndjson" in wanted:
        return Response("".join(line.as_json() + "\n" for line in lines), media_type="application/x-ndjson")
    if "text/plain" in wanted:
        return Response("".join(line.as_text() + "\n" for line in lines), media_type="text/plain; charset=utf-8")
    return {"content": [line.values for line in lines], "continuation_token": None}


@router.get("/{run_id}/taskInstances/{task_id}/xcomEntries", tags=["XCom"])
async def get_xcoms(
    host: HostOf,
    page: PageOf,
    dag_id: str,
    run_id: str,
    task_id: str,
    _caller: Caller,
    map_index: MapIndex = -1,
) -> XComList:
    """List the XComs of a task instance."""
    task = await _task(host, dag_id, run_id, task_id=task_id, map_index=map_index)
    rows, total = await _xcoms(host, page, task)
    return XComList.model_validate({"xcom_entries": rows, "total_entries": total})


@router.get("/{run_id}/taskInstances/{task_id}/xcomEntries/{xcom_key}", tags=["XCom"])
async def get_xcom(
    host: HostOf, dag_id: str, run_id: str, task_id: str, xcom_key: str, _caller: Caller, map_index: MapIndex = -1
) -> XComValue:
    """One XCom with its value."""
    task = await _task(host, dag_id, run_id, task_id=task_id, map_index=map_index)
    async with host.database.transaction() as connection:
        found = await listed.read_xcom(
            connection, dag_run_id=task["dag_run_id"], task_id=task_id, map_index=map_index, key=xcom_key
        )
    if found is None:
        raise NotFound(what=f"XCom {xcom_key!r} of task {task_id!r}")
    return XComValue.model_validate(shaped_xcom(found, task))


async def _xcoms(host: HostOf, page: PageOf, task: Mapping[str, Any]) -> tuple[Sequence[dict[str, Any]], int]:
    async with host.database.transaction() as connection:
        found = await listed.list_xcoms(
            connection, page, dag_run_id=task["dag_run_id"], task_id=task["task_id"], map_index=task["map_index"]
        )
    return [shaped_xcom(row, task) for row in found.rows], found.total


async def _run(host: HostOf, dag_id: str, run_id: str) -> Mapping[str, Any]:
    async with host.database.transaction() as connection:
        found = await listed.read_run(connection, dag_id, run_id)
    if found is None:
        raise NotFound(what=f"run {run_id!r} of DAG {dag_id!r}")
    return found


async def _task(host: HostOf, dag_id: str, run_id: str, *, task_id: str, map_index: int = -1) -> Mapping[str, Any]:
    async with host.database.transaction() as connection:
        found = await listed.read_task(connection, dag_id, run_id, task_id=task_id, map_index=map_index)
    if found is None:
        raise NotFound(what=f"task {task_id!r} in run {run_id!r} of DAG {dag_id!r}")
    return found


async def _require_dag(connection: AsyncConnection, dag_id: str) -> None:
    if await read_dag(connection, dag_id) is None:
        raise NotFound(what=f"DAG {dag_id!r}")
