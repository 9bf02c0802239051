"""Hand-made declarations of pipeline files, and what the database holds after they were synced."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text

from app.domain.specs import (
    AllOf,
    AnyOf,
    AssetKey,
    AssetLeaf,
    AssetSpec,
    DagSpec,
    LoadResult,
    ScheduleKind,
    ScheduleSpec,
    TaskSpec,
    TriggerSpec,
    WatcherSpec,
)
from app.services.dags import DagDefaults, SyncOutcome, sync_file
from app.store.database import Database
from app.store.wakeups import Notifier

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULTS = DagDefaults(is_paused=False, max_active_runs=16, max_active_tasks=16)


def trigger(kwargs: str = "{}", *, classpath: str = "watchers.Tick", **more: Any) -> TriggerSpec:
    """A declared trigger; its identity follows from class path and kwargs."""
    identity = hashlib.sha256(f"{classpath}|{kwargs}".encode()).hexdigest()
    return TriggerSpec(classpath=classpath, kwargs=kwargs, identity=identity, **more)


def watched(name: str, *watchers: tuple[str, TriggerSpec] | WatcherSpec, **more: Any) -> AssetSpec:
    """An asset with watchers, of uri ``x://name`` unless given."""
    specs = tuple(
        watcher if isinstance(watcher, WatcherSpec) else WatcherSpec(name=watcher[0], trigger=watcher[1])
        for watcher in watchers
    )
    return AssetSpec(**{"name": name, "uri": f"x://{name}", "watchers": specs, **more})


def on(*assets: AssetSpec, every: bool = False) -> ScheduleSpec:
    """A schedule on any (or all) of the assets."""
    leaves = tuple(AssetLeaf(name=asset.name, uri=asset.uri) for asset in assets)
    return ScheduleSpec(kind=ScheduleKind.ASSETS, condition=AllOf(members=leaves) if every else AnyOf(members=leaves))


def consumer(dag_id: str, *assets: AssetSpec, **more: Any) -> DagSpec:
    """A DAG scheduled on the assets, with one task."""
    values: dict[str, Any] = {
        "dag_id": dag_id,
        "fileloc": f"{dag_id}.py",
        "schedule": on(*assets),
        "assets": assets,
        "tasks": (TaskSpec(task_id="work", operator="PythonOperator"),),
    }
    return DagSpec(**{**values, **more})


def producer(dag_id: str, *assets: AssetSpec, **more: Any) -> DagSpec:
    """A DAG without schedule whose task has the assets as outlets."""
    keys = tuple(AssetKey(name=asset.name, uri=asset.uri) for asset in assets)
    task = TaskSpec(task_id="make", operator="PythonOperator", outlets=keys)
    return DagSpec(**{"dag_id": dag_id, "fileloc": "p.py", "assets": assets, "tasks": (task,), **more})


class Declared:
    """Files synced into one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.notifier = Notifier(database)

    async def sync(
        self, file: str, *dags: DagSpec, code: str = "", defaults: DagDefaults = DEFAULTS, **more: Any
    ) -> SyncOutcome:
        """Sync a file that declares the DAGs and has ``code`` as content."""
        result = LoadResult(file=file, dags=dags, modules=(file,), **more)
        return await sync_file(
            self.database,
            self.notifier,
            result,
            sources={file: code.encode()},
            defaults=defaults,
            encrypt=lambda kwargs: f"sealed {kwargs}".encode(),
            now=NOW,
        )

    async def rows(self, query: str, **values: Any) -> Sequence[Any]:
        async with self.database.transaction() as connection:
            return (await connection.execute(text(query), values)).all()

    async def one(self, query: str, **values: Any) -> Any:
        (row,) = await self.rows(query, **values)
        return row

    async def execute(self, statement: str, **values: Any) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(text(statement), values)

    async def versions_of_rows(self, *tables: str) -> Mapping[str, Sequence[Any]]:
        """The rows of the tables with the transaction that wrote each: equal exactly if nothing was written."""
        return {
            table: sorted(map(str, await self.rows(f"SELECT xmin::text, ctid::text, * FROM {table}")))
            for table in tables
        }

    async def links(self) -> set[tuple[str, str, int]]:
        """(asset, watcher, trigger id) of each link."""
        return {
            (row.asset, row.name, row.trigger_id)
            for row in await self.rows(
                "SELECT a.name AS asset, w.name, w.trigger_id FROM asset_watcher w JOIN asset a ON a.id = w.asset_id"
            )
        }

    async def triggers(self) -> list[Any]:
        return list(await self.rows("SELECT * FROM trigger ORDER BY id"))

    async def active_assets(self) -> set[str]:
        """The uris of the active assets."""
        return {row.uri for row in await self.rows("SELECT uri FROM asset WHERE is_active")}
