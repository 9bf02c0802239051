"""A deployment's inside for executor tests: a pipeline file stored, events posted, runs planned, attempts run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.kernel.clock import utc_now
from app.kernel.settings import Settings
from app.processes.executor.local import LocalExecutor
from app.sdk.loader import describe, load_pipeline
from app.services import dags, demand, tasks
from app.services.dags import DagDefaults
from app.services.runs import ManualRun, create_manual
from app.store.database import Database
from app.store.wakeups import Listener, Notifier
from tests.factories import make_job
from tests.waiting import eventually

ENTRY = "pipeline.py"


@dataclass(slots=True, kw_only=True)
class World:
    """One stored pipeline file and one executor over it."""

    database: Database
    notifier: Notifier
    settings: Settings
    executor: LocalExecutor
    owner_id: int
    stop: asyncio.Event

    async def run(self, dag_id: str, *, conf: dict[str, Any] | None = None) -> str:
        """Start a run by hand; its id."""
        request = ManualRun(dag_id=dag_id, triggered_by="test", conf=conf or {})
        made = await create_manual(self.database, self.notifier, request)
        await demand.plan(self.database, self.notifier)
        return made.run_id

    async def run_to_end(self, dag_id: str, *, within: float = 60) -> dict[str, Any]:
        """Run the DAG once; the run's row."""
        run_id = await self.run(dag_id)

        async def ended() -> dict[str, Any] | None:
            await tasks.requeue_due(self.database, self.notifier)
            row = await self.row("SELECT * FROM dag_run WHERE dag_id = $1 AND run_id = $2", dag_id, run_id)
            return row if row and row["end_date"] else None

        found = await eventually(ended, within, what=f"end of {dag_id}")
        assert found is not None
        return found

    async def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        async with self.database.hot() as hot:
            return [dict(row) for row in await hot.fetch(statement, *values)]

    async def row(self, statement: str, *values: Any) -> dict[str, Any] | None:
        found = await self.rows(statement, *values)
        return found[0] if found else None

    async def task(self, run_id: str, task_id: str) -> dict[str, Any]:
        row = await self.row("SELECT * FROM task_instance WHERE run_id = $1 AND task_id = $2", run_id, task_id)
        assert row is not None
        return row

    def log(self, dag_id: str, run_id: str, task_id: str, *, attempt: int = 1) -> list[dict[str, Any]]:
        """The parsed lines of an attempt's log; raw lines as ``{"event": …}``."""
        from app.kernel.attempt_logs import attempt_log_path

        path = attempt_log_path(
            self.settings.home, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=-1, attempt=attempt
        )
        lines = path.read_text(errors="replace").splitlines()
        return [json.loads(line) if line.startswith("{") else {"event": line} for line in lines]


@asynccontextmanager
async def world(database_url: str, settings: Settings, source: str, *, paused: bool = False) -> AsyncIterator[World]:
    """Store ``source`` as a pipeline file, its DAGs ``paused`` or not, and run an executor over its runs."""
    folder = Path(settings.home) / "dags"
    folder.mkdir()
    (folder / ENTRY).write_text(source)
    async with await Database.connect(database_url, pool_size=4) as database, Notifier.open(database) as notifier:
        await _store(database, notifier, folder, paused=paused)
        async with database.hot() as hot:
            owner_id = await make_job(hot)
        async with Listener.open(database, notifier, ["tasks", "dags"]) as listener, asyncio.TaskGroup() as group:
            executor = LocalExecutor(
                database=database, notifier=notifier, listener=listener, settings=settings, owner_id=owner_id
            )
            stop = asyncio.Event()
            running = group.create_task(executor.run(stop))
            yield World(
                database=database,
                notifier=notifier,
                settings=settings,
                executor=executor,
                owner_id=owner_id,
                stop=stop,
            )
            stop.set()
            await running


async def _store(database: Database, notifier: Notifier, folder: Path, *, paused: bool = False) -> None:
    loaded = load_pipeline(folder, ENTRY)
    try:
        result = describe(loaded.require())
    finally:
        loaded.unload()
    await dags.sync_file(
        database,
        notifier,
        result,
        sources={ENTRY: (folder / ENTRY).read_bytes()},
        defaults=DagDefaults(is_paused=paused, max_active_runs=16, max_active_tasks=16),
        encrypt=str.encode,
        now=utc_now(),
    )
