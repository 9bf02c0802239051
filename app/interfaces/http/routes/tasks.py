"""Task instances, their logs and XComs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from app.domain.states import TaskState
from app.interfaces.http.dependencies import HostOf, PageOf
from app.interfaces.http.logs import LogForm, read_log, wanted_form
from app.interfaces.http.routes.runs import ANY, the_run
from app.interfaces.http.schemas.tasks import (
    LogAnswer,
    TaskInstanceAnswer,
    TaskInstanceList,
    XComAnswer,
    XComList,
    XComValue,
)
from app.interfaces.http.shapes import shaped_task, shaped_xcom
from app.kernel.errors import NotFound
from app.store.listings import runs as listed
from app.store.listings.dags import read_dag

router = APIRouter(prefix="/dags/{dag_id}/dagRuns/{run_id}/taskInstances", tags=["Task Instance"])
MapIndex = Annotated[int, Query(ge=-1, lt=2**31)]
_LOG_FORMS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The log; of a very long one, the end",
        "content": {
            LogForm.LINES.value: {"schema": {"type": "string"}},
            LogForm.TEXT.value: {"schema": {"type": "string"}},
        },
    }
}


@router.get("")
async def get_tasks(
    host: HostOf,
    page: PageOf,
    dag_id: str,
    run_id: str,
    state: Annotated[list[TaskState] | None, Query()] = None,
    task_id: str | None = None,
) -> TaskInstanceList:
    """List the task instances of a run; ``~`` stands for every DAG or run."""
    async with host.database.transaction() as connection:
        found = await listed.list_tasks(
            connection,
            page,
            dag_id=None if dag_id == ANY else dag_id,
            run_id=None if run_id == ANY else run_id,
            task_id=task_id,
            states=state or (),
        )
    if not found.total:
        await _require(host, dag_id, run_id)
    rows = [TaskInstanceAnswer.model_validate(shaped_task(row)) for row in found.rows]
    return TaskInstanceList(task_instances=rows, total_entries=found.total)


@router.get("/{task_id}")
async def get_task(
    host: HostOf, dag_id: str, run_id: str, task_id: str, map_index: MapIndex = -1
) -> TaskInstanceAnswer:
    """One task instance."""
    return TaskInstanceAnswer.model_validate(shaped_task(await _task(host, dag_id, run_id, task_id, map_index)))


@router.get("/{task_id}/logs/{try_number}", response_model=LogAnswer, responses=_LOG_FORMS)
async def get_log(
    request: Request,
    host: HostOf,
    dag_id: str,
    run_id: str,
    task_id: str,
    try_number: Annotated[int, Path(ge=0, lt=2**31)],
    map_index: MapIndex = -1,
) -> Response:
    """The log of one attempt: JSON, text, or a JSON object a line, by the ``Accept`` header."""
    await _task(host, dag_id, run_id, task_id, map_index)
    form = wanted_form(request.headers.get("accept", ""))
    content = await read_log(
        host.settings, form, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index, attempt=try_number
    )
    return Response(content, media_type=form.value)


@router.get("/{task_id}/xcomEntries", tags=["XCom"])
async def get_xcoms(
    host: HostOf, page: PageOf, dag_id: str, run_id: str, task_id: str, map_index: MapIndex = -1
) -> XComList:
    """List the XComs of a task instance."""
    task = await _task(host, dag_id, run_id, task_id, map_index)
    async with host.database.transaction() as connection:
        found = await listed.list_xcoms(
            connection, page, dag_run_id=task["dag_run_id"], task_id=task_id, map_index=map_index
        )
    entries = [XComAnswer.model_validate(shaped_xcom(row, task)) for row in found.rows]
    return XComList(xcom_entries=entries, total_entries=found.total)


@router.get("/{task_id}/xcomEntries/{xcom_key}", tags=["XCom"])
async def get_xcom(
    host: HostOf,
    dag_id: str,
    run_id: str,
    task_id: str,
    xcom_key: str,
    map_index: MapIndex = -1,
    stringify: Annotated[bool, Query(description="The value as JSON text")] = False,
) -> XComValue:
    """One XCom with its value, as plain JSON."""
    task = await _task(host, dag_id, run_id, task_id, map_index)
    async with host.database.transaction() as connection:
        found = await listed.read_xcom(
            connection, dag_run_id=task["dag_run_id"], task_id=task_id, map_index=map_index, key=xcom_key
        )
    if found is None:
        raise NotFound(what=f"XCom {xcom_key!r} of task {task_id!r}")
    return XComValue.model_validate(shaped_xcom(found, task, as_text=stringify))


async def _task(host: HostOf, dag_id: str, run_id: str, task_id: str, map_index: int) -> Mapping[str, Any]:
    async with host.database.transaction() as connection:
        found = await listed.read_task(connection, dag_id, run_id, task_id=task_id, map_index=map_index)
    if found is None:
        raise NotFound(what=f"task {task_id!r} in run {run_id!r} of DAG {dag_id!r}")
    return found


async def _require(host: HostOf, dag_id: str, run_id: str) -> None:
    """The DAG and run that a list found nothing of must at least exist; raises :class:`NotFound`."""
    if dag_id == ANY:
        return
    if run_id != ANY:
        await the_run(host, dag_id, run_id)
        return
    async with host.database.transaction() as connection:
        if await read_dag(connection, dag_id) is None:
            raise NotFound(what=f"DAG {dag_id!r}")
