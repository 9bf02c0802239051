"""Rows that other stages own, put into the database directly: bundles, DAGs, assets, events, jobs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from app.domain.specs import (
    AllOf,
    AnyOf,
    AssetKey,
    AssetLeaf,
    BatchSpec,
    Condition,
    DagSpec,
    ScheduleKind,
    ScheduleSpec,
    TaskSpec,
    condition_assets,
)
from app.store.database import Database, HotConnection

DIGEST = "d" * 64
_numbers = itertools.count(1)


def leaf(name: str) -> AssetLeaf:
    """The condition "asset ``name`` has an event"."""
    return AssetLeaf(name=name, uri=f"x://{name}")


def on_assets(condition: Condition | str, *, batch: BatchSpec | None = None) -> ScheduleSpec:
    """A schedule on a condition, or on ``"a & b"``, ``"a | b"``, ``"a"``."""
    if isinstance(condition, str):
        condition = parse_condition(condition)
    return ScheduleSpec(kind=ScheduleKind.ASSETS, condition=condition, batch=batch)


def parse_condition(text: str) -> Condition:
    """``|`` of ``&`` of asset names."""
    clauses = [
        AllOf(members=tuple(leaf(name.strip()) for name in part.split("&"))) if "&" in part else leaf(part.strip())
        for part in text.split("|")
    ]
    return clauses[0] if len(clauses) == 1 else AnyOf(members=tuple(clauses))


def task(task_id: str, *upstream: str, **options: Any) -> TaskSpec:
    """A task spec."""
    return TaskSpec(task_id=task_id, operator="EmptyOperator", upstream=upstream, **options)


async def make_bundle(hot: HotConnection) -> None:
    """The one bundle that all DAGs of a test share."""
    await hot.execute("INSERT INTO bundle (digest, entry) VALUES ($1, 'pipeline.py') ON CONFLICT DO NOTHING", DIGEST)


async def make_asset(hot: HotConnection, name: str) -> int:
    """An active asset; its id. Again the same one for the same name."""
    found: int = await hot.fetchval(
        """
        INSERT INTO asset (name, uri, group_name, extra, is_active, updated_at)
        VALUES ($1, $2, 'asset', '{}', true, now())
        ON CONFLICT (name, uri) DO UPDATE SET is_active = true RETURNING id
        """,
        name,
        f"x://{name}",
    )
    return found


async def make_dag(
    hot: HotConnection,
    dag_id: str,
    *,
    schedule: ScheduleSpec | None = None,
    tasks: Sequence[TaskSpec] = (task("work"),),
    max_active_runs: int = 16,
    max_active_tasks: int = 16,
    paused: bool = False,
    **options: Any,
) -> int:
    """A DAG with its first version, assets and references; the version's id."""
    await make_bundle(hot)
    await hot.execute(
        """
        INSERT INTO dag (dag_id, file_path, is_paused, is_active, max_active_runs, max_active_tasks, updated_at)
        VALUES ($1, 'pipeline.py', $2, true, $3, $4, now())
        """,
        dag_id,
        paused,
        max_active_runs,
        max_active_tasks,
    )
    spec = DagSpec(
        dag_id=dag_id,
        fileloc="pipeline.py",
        schedule=schedule or ScheduleSpec(),
        tasks=tuple(tasks),
        **options,
    )
    return await make_version(hot, spec)


async def make_version(hot: HotConnection, spec: DagSpec) -> int:
    """A further version of a DAG, made its current one, with its schedule's references; the version's id."""
    version_id: int = await hot.fetchval(
        """
        INSERT INTO dag_version (dag_id, version_number, bundle_digest, spec_digest, spec)
        VALUES ($1, (SELECT count(*) + 1 FROM dag_version WHERE dag_id = $1), $2, $3, $4) RETURNING id
        """,
        spec.dag_id,
        DIGEST,
        f"{next(_numbers):064x}",
        msgspec.json.encode(spec).decode(),
    )
    await hot.execute("UPDATE dag SET current_version_id = $2 WHERE dag_id = $1", spec.dag_id, version_id)
    await hot.execute("DELETE FROM asset_reference WHERE dag_id = $1 AND kind = 'schedule'", spec.dag_id)
    for key in scheduled_assets(spec):
        await hot.execute(
            "INSERT INTO asset_reference (dag_id, asset_id, kind) VALUES ($1, $2, 'schedule')",
            spec.dag_id,
            await make_asset(hot, key.name),
        )
    return version_id


def scheduled_assets(spec: DagSpec) -> tuple[AssetKey, ...]:
    """The assets of a spec's schedule."""
    condition = spec.schedule.condition
    return condition_assets(condition) if condition is not None else ()


_STORE_EVENTS = """
WITH stored AS (
    INSERT INTO asset_event (asset_id, body_id, origin, "timestamp")
    SELECT a.id, $2, 'rest', now() FROM unnest($1::text[]) WITH ORDINALITY AS n(name, place) JOIN asset a USING (name)
    ORDER BY place RETURNING id, asset_id
), due AS (
    SELECT d.dag_id, d.is_paused, s.id, s.asset_id, row_number() OVER (PARTITION BY d.dag_id ORDER BY s.id) AS place
    FROM stored s JOIN asset_reference r ON r.asset_id = s.asset_id AND r.kind = 'schedule' JOIN dag d USING (dag_id)
), ordered AS (
    UPDATE dag d SET last_arrival = last_arrival + n.arrivals, has_demand = has_demand OR NOT n.paused
    FROM (SELECT dag_id, count(*) AS arrivals, bool_and(is_paused) AS paused FROM due GROUP BY dag_id) n
    WHERE d.dag_id = n.dag_id RETURNING d.dag_id, last_arrival - arrivals AS before
), demanded AS (
    INSERT INTO demand (dag_id, event_id, asset_id, arrival, state, reason)
    SELECT due.dag_id, due.id, due.asset_id, before + place, CASE WHEN is_paused THEN 'skipped' ELSE 'pending' END,
           CASE WHEN is_paused THEN 'paused' END
    FROM due JOIN ordered USING (dag_id)
)
SELECT id FROM stored ORDER BY id
"""


async def store_events(database: Database, *assets: str, extra: str = '{"from_rest_api": true}') -> list[int]:
    """Store one event of each named asset in one transaction, with its demand; the events' ids in order."""
    async with database.hot() as hot:
        await hot.execute(
            """
            SELECT 1 FROM dag WHERE dag_id IN (SELECT r.dag_id FROM asset_reference r JOIN asset a ON a.id = r.asset_id
                                               WHERE a.name = ANY($1::text[]) AND r.kind = 'schedule')
            ORDER BY dag_id FOR NO KEY UPDATE
            """,
            list(assets),
        )
        body_id = await hot.fetchval("INSERT INTO event_body (extra) VALUES ($1) RETURNING id", extra)
        rows = await hot.fetch(_STORE_EVENTS, list(assets), body_id)
    return [row[0] for row in rows]


async def make_job(hot: HotConnection, *, ended: bool = False, job_type: str = "scheduler") -> int:
    """A process; its id."""
    job_id: int = await hot.fetchval(
        """
        INSERT INTO job (job_type, hostname, pid, latest_heartbeat, ended_at)
        VALUES ($1, 'localhost', 1, now(), CASE WHEN $2 THEN now() END) RETURNING id
        """,
        job_type,
        ended,
    )
    return job_id
