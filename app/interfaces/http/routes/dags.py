"""DAGs and import errors."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from app.interfaces.http.dependencies import HostOf, PageOf
from app.interfaces.http.schemas.dags import (
    DagAnswer,
    DagDetails,
    DagList,
    DagPatch,
    ImportErrorAnswer,
    ImportErrorList,
)
from app.interfaces.http.shapes import shaped_dag
from app.kernel.errors import NotFound
from app.services import dags
from app.store.listings import dags as listed

router = APIRouter()


@router.get("/dags", tags=["DAG"])
async def get_dags(
    host: HostOf,
    page: PageOf,
    *,
    dag_id_pattern: str | None = None,
    paused: bool | None = None,
    exclude_stale: bool = True,
) -> DagList:
    """List DAGs."""
    async with host.database.transaction() as connection:
        found = await listed.list_dags(
            connection, page, dag_id_pattern=dag_id_pattern, paused=paused, only_active=exclude_stale
        )
    folder = str(host.settings.pipelines_folder)
    rows = [DagAnswer.model_validate(shaped_dag(row, folder=folder)) for row in found.rows]
    return DagList(dags=rows, total_entries=found.total)


@router.get("/dags/{dag_id}", tags=["DAG"])
async def get_dag(host: HostOf, dag_id: str) -> DagDetails:
    """One DAG."""
    return await _details(host, dag_id)


@router.get("/dags/{dag_id}/details", tags=["DAG"])
async def get_dag_details(host: HostOf, dag_id: str) -> DagDetails:
    """One DAG with what its file declares."""
    return await _details(host, dag_id)


@router.patch("/dags/{dag_id}", tags=["DAG"])
async def patch_dag(host: HostOf, dag_id: str, body: DagPatch) -> DagDetails:
    """Pause or unpause a DAG; it takes effect at once."""
    await dags.set_paused(host.database, host.notifier, dag_id=dag_id, paused=body.is_paused)
    return await _details(host, dag_id)


@router.get("/importErrors", tags=["Import Error"])
async def get_import_errors(host: HostOf, page: PageOf, *, filename_pattern: str | None = None) -> ImportErrorList:
    """List files that could not be loaded."""
    async with host.database.transaction() as connection:
        found = await listed.list_import_errors(connection, page, filename_pattern=filename_pattern)
    rows = [ImportErrorAnswer.model_validate(row) for row in found.rows]
    return ImportErrorList(import_errors=rows, total_entries=found.total)


@router.get("/importErrors/{import_error_id}", tags=["Import Error"])
async def get_import_error(host: HostOf, import_error_id: Annotated[int, Path(ge=0, lt=2**63)]) -> ImportErrorAnswer:
    """One file that could not be loaded."""
    async with host.database.transaction() as connection:
        found = await listed.read_import_error(connection, import_error_id)
    if found is None:
        raise NotFound(what=f"import error {import_error_id}")
    return ImportErrorAnswer.model_validate(found)


async def _details(host: HostOf, dag_id: str) -> DagDetails:
    async with host.database.transaction() as connection:
        found = await listed.read_dag(connection, dag_id)
    if found is None:
        raise NotFound(what=f"DAG {dag_id!r}")
    return DagDetails.model_validate(shaped_dag(found, folder=str(host.settings.pipelines_folder)))
