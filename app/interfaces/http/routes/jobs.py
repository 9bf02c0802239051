"""Processes."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from app.interfaces.http.dependencies import HostOf, PageOf
from app.interfaces.http.schemas.jobs import JobAnswer, JobList
from app.store.listings import jobs as listed

router = APIRouter(tags=["Job"])
JobType = Literal["scheduler", "triggerer", "dag_processor", "api_server"]


@router.get("/jobs")
async def get_jobs(
    host: HostOf, page: PageOf, *, job_type: JobType | None = None, is_alive: bool | None = None
) -> JobList:
    """List processes, the latest first. ``is_alive``: only those that have not ended, or only those that have."""
    async with host.database.transaction() as connection:
        found = await listed.list_jobs(connection, page, job_type=job_type, is_alive=is_alive)
    jobs = [
        JobAnswer.model_validate({**row, "state": "running" if row["ended_at"] is None else "ended"})
        for row in found.rows
    ]
    return JobList(jobs=jobs, total_entries=found.total)
