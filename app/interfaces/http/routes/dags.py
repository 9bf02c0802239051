"""DAGs and import errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path

from app.interfaces.http.dependencies import Caller, HostOf, PageOf
from app.interfaces.http.schemas import DagDetails, DagList, DagPatch, ImportErrorAnswer, ImportErrorList
from app.kernel.errors import NotFound
from app.services import dags
from app.store.listings import dags as listed

router = APIRouter()


@router.get("/dags", tags=["DAG"])
async def get_dags(
    host: HostOf,
    page: PageOf,
    _caller: Caller,
    dag_id_pattern: str | None = None,
    paused: bool | None = None,
    exclude_stale: bool = True,
) -> DagList:
    """List DAGs."""
    async with host.database.transaction() as connection:
        found = await listed.list_dags(
            connection, page, dag_id_pattern=dag_id_pattern, paused=paused, only_active=exclude_stale
        )
    folder = host.settings.pipelines_folder
    rows = [shaped(row, folder=str(folder)) for row in found.rows]
    return DagList.model_validate({"dags": rows, "total_entries": found.total})


@router.get("/dags/{dag_id}", tags=["DAG"])
async def get_dag(host: HostOf, dag_id: str, _caller: Caller) -> DagDetails:
    """One DAG."""
    return await _details(host, dag_id)


@router.get("/dags/{dag_id}/details", tags=["DAG"])
async def get_dag_details(host: HostOf, dag_id: str, _caller: Caller) -> DagDetails:
    """One DAG with what its file declares."""
    return await _details(host, dag_id)


@router.patch("/dags/{dag_id}", tags=["DAG"])
async def patch_dag(host: HostOf, dag_id: str, body: DagPatch, _caller: Caller) -> DagDetails:
    """Pause or unpause a DAG; it takes effect at once."""
    if not await dags.set_paused(host.database, host.notifier, dag_id=dag_id, paused=body.is_paused):
        raise NotFound(what=f"DAG {dag_id!r}")
    return await _details(host, dag_id)


@router.get("/importErrors", tags=["Import Error"])
async def get_import_errors(
    host: HostOf, page: PageOf, _caller: Caller, filename_pattern: str | None = None
) -> ImportErrorList:
    """List files that could not be loaded."""
    async with host.database.transaction() as connection:
        found = await listed.list_import_errors(connection, page, filename_pattern=filename_pattern)
    rows = [{**row, "import_error_id": row["id"]} for row in found.rows]
    return ImportErrorList.model_validate({"import_errors": rows, "total_entries": found.total})


@router.get("/importErrors/{import_error_id}", tags=["Import Error"])
async def get_import_error(
    host: HostOf, import_error_id: Annotated[int, Path(ge=0, lt=2**63)], _caller: Caller
) -> ImportErrorAnswer:
    """One file that could not be loaded."""
    async with host.database.transaction() as connection:
        found = await listed.read_import_error(connection, import_error_id)
    if found is None:
        raise NotFound(what=f"import error {import_error_id}")
    return ImportErrorAnswer.model_validate({**found, "import_error_id": found["id"]})


async def _details(host: HostOf, dag_id: str) -> DagDetails:
    async with host.database.transaction() as connection:
        found = await listed.read_dag(connection, dag_id)
    if found is None:
        raise NotFound(what=f"DAG {dag_id!r}")
    return DagDetails.model_validate(shaped(found, folder=str(host.settings.pipelines_folder)))


def shaped(row: Mapping[str, Any], *, folder: str) -> dict[str, Any]:
    """A row of :func:`app.store.listings.dags.list_dags` in the shape of the field's answer."""
    spec: Mapping[str, Any] = row["spec"] or {}
    schedule: Mapping[str, Any] = spec.get("schedule") or {}
    name = spec.get("display_name") or row["dag_id"]
    return {
        **row,
        "dag_display_name": name,
        "is_stale": not row["is_active"],
        "description": spec.get("description"),
        "fileloc": f"{folder}/{row['file_path']}",
        "relative_fileloc": row["file_path"],
        "timetable_summary": schedule.get("summary"),
        "timetable_description": schedule.get("summary"),
        "tags": [{"name": tag, "dag_id": row["dag_id"], "dag_display_name": name} for tag in spec.get("tags", ())],
        "owners": list(spec.get("owners", ())),
        "next_dagrun_logical_date": row["next_logical_date"],
        "next_dagrun_run_after": row["next_run_at"],
        "last_parsed_time": row["last_parsed_at"],
        "bundle_version": row["bundle_digest"],
        "catchup": bool(spec.get("catchup", False)),
        "params": spec.get("params") or {},
        "start_date": spec.get("start_date"),
        "end_date": spec.get("end_date"),
        "latest_dag_version": row["version_number"],
        "asset_expression": schedule.get("condition"),
        "tasks": [dict(task) for task in spec.get("tasks", ())],
    }
