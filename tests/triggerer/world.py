"""A small world in a real database: assets, DAGs that consume them, triggers that watch."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import asyncpg

from app.services.secrets import Keys
from app.store.database import Database
from watchers.encoding import encode_kwargs

DIGEST = "0" * 64


class World:
    """Makes rows; each method returns the id."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self.database = database
        self.keys = keys
        self._count = 0

    async def fetch(self, query: str, *values: Any) -> list[asyncpg.Record]:
        """Rows of a query."""
        async with self.database.hot() as hot:
            return list(await hot.fetch(query, *values))

    async def value(self, query: str, *values: Any) -> Any:
        """One value."""
        async with self.database.hot() as hot:
            return await hot.fetchval(query, *values)

    async def asset(self, name: str | None = None, *, active: bool = True) -> int:
        self._count += 1
        name = name or f"asset_{self._count}"
        return int(
            await self.value(
                "INSERT INTO asset (name, uri, group_name, extra, is_active, updated_at) "
                "VALUES ($1, $2, 'asset', '{}', $3, now()) RETURNING id",
                name,
                f"x://{name}",
                active,
            )
        )

    async def dag(self, dag_id: str, *assets: int, paused: bool = False, active: bool = True) -> str:
        """A DAG scheduled on the assets."""
        await self.value(
            "INSERT INTO dag (dag_id, file_path, is_paused, is_active, max_active_runs, max_active_tasks, updated_at) "
            "VALUES ($1, 'x.py', $2, $3, 16, 16, now())",
            dag_id,
            paused,
            active,
        )
        for asset in assets:
            await self.value(
                "INSERT INTO asset_reference (dag_id, asset_id, kind) VALUES ($1, $2, 'schedule')", dag_id, asset
            )
        return dag_id

    async def trigger(
        self,
        *assets: int,
        classpath: str = "x.Y",
        kwargs: dict[str, Any] | None = None,
        when: str | None = None,
        schema: dict[str, Any] | None = None,
    ) -> int:
        """A wanted trigger, watched by each of the assets."""
        self._count += 1
        text = encode_kwargs(kwargs or {})
        identity = hashlib.sha256(f"{classpath}{text}{self._count}".encode()).hexdigest()
        trigger_id = int(
            await self.value(
                "INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status) "
                "VALUES ('asset', $1, $2, $3, true, 'unassigned') RETURNING id",
                identity,
                classpath,
                self.keys.encrypt(text),
            )
        )
        for asset in assets:
            await self.watcher(asset, trigger_id, when=when, schema=schema)
        return trigger_id

    async def watcher(
        self,
        asset: int,
        trigger: int,
        *,
        name: str = "watch",
        when: str | None = None,
        schema: dict[str, Any] | None = None,
    ) -> int:
        return int(
            await self.value(
                "INSERT INTO asset_watcher (asset_id, trigger_id, name, when_expression, payload_schema) "
                "VALUES ($1, $2, $3, $4, $5) RETURNING id",
                asset,
                trigger,
                name,
                when,
                None if schema is None else json.dumps(schema),
            )
        )

    async def job(self, job_type: str = "triggerer") -> int:
        """A process that nobody runs."""
        return int(
            await self.value(
                "INSERT INTO job (job_type, hostname, pid, latest_heartbeat, latest_progress) "
                "VALUES ($1, 'host', 1, now(), now()) RETURNING id",
                job_type,
            )
        )

    async def own(self, trigger: int, job: int) -> int:
        """Give the trigger to the job; returns the epoch."""
        return int(
            await self.value(
                "UPDATE trigger SET status = 'running', owner_id = $2, epoch = epoch + 1 WHERE id = $1 RETURNING epoch",
                trigger,
                job,
            )
        )

    async def payloads(self, asset: int) -> list[Any]:
        """Payloads of the asset's events in id order."""
        rows = await self.fetch(
            "SELECT b.extra FROM asset_event e JOIN event_body b ON b.id = e.body_id WHERE e.asset_id = $1 "
            "ORDER BY e.id",
            asset,
        )
        return [json.loads(row["extra"])["payload"] for row in rows]

    async def letters(self, trigger: int) -> list[asyncpg.Record]:
        return await self.fetch("SELECT * FROM dead_letter WHERE trigger_id = $1 ORDER BY id", trigger)
