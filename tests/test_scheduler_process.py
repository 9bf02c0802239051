"""The scheduler process as a whole: events become runs whose tasks run in processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.kernel.settings import Settings
from app.processes.host import Host, open_host
from app.processes.scheduler.process import SchedulerFenced, serve
from tests.databases import fetch
from tests.executor.world import ENTRY, _store
from tests.factories import store_events
from tests.waiting import eventually

SOURCE = """
from app.sdk import DAG, Asset, task

with DAG("consumer", schedule=[Asset("a", uri="x://a")], max_active_runs=2):

    @task
    def work(triggering_asset_events=None):
        [event] = triggering_asset_events[Asset("a", uri="x://a")]
        return event.extra["n"]

    @task
    def after(value):
        return value * 10

    after(work())
"""


@asynccontextmanager
async def serving(settings: Settings, database_url: str) -> AsyncIterator[tuple[Host, asyncio.Task[None]]]:
    """A scheduler process over one stored pipeline file."""
    folder = Path(settings.home) / "dags"
    folder.mkdir()
    (folder / ENTRY).write_text(SOURCE)
    stop = asyncio.Event()
    async with open_host(settings, database_url, job_type="scheduler", stop=stop) as host:
        await _store(host.database, host.notifier, folder)
        process = asyncio.create_task(serve(host))
        try:
            yield host, process
        finally:
            stop.set()
            await asyncio.wait([process])


async def test_events_become_runs_whose_tasks_see_them(settings: Settings, database_url: str) -> None:
    async with serving(settings, database_url) as (host, process):
        for number in range(5):
            await store_events(host.database, "a", extra=f'{{"n": {number}}}')
        host.notifier.poke("demand")

        async def succeeded() -> bool:
            rows = await fetch(host.database, "SELECT state FROM dag_run")
            assert "failed" not in {row["state"] for row in rows} or process.done()
            return [row["state"] for row in rows] == ["success"] * 5

        await eventually(succeeded, 60)
        rows = await fetch(host.database, "SELECT value::text FROM xcom WHERE task_id = 'after' ORDER BY dag_run_id")
        assert [row[0] for row in rows] == [str(number * 10) for number in range(5)]
    assert process.exception() is None


async def test_a_scheduler_that_lost_its_lease_ends(settings: Settings, database_url: str) -> None:
    async with serving(settings, database_url) as (host, process):
        host.job.lease_lost.set()
        await asyncio.wait_for(asyncio.wait([process]), 30)
        with pytest.raises(SchedulerFenced, match="retried elsewhere"):
            process.result()
