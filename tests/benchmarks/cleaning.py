"""Removing many old events beside deliveries: ``python -m tests.benchmarks.cleaning [EVENTS]``.

Prints how long it takes, and how long storing one event takes with and without it, side by side in one run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import timedelta

from app.kernel.settings import load_settings
from app.processes.retention import _rest, clean, cleanings
from app.services.retention import Kind, server_time
from app.store.database import Database
from tests.factories import make_asset, make_dag, on_assets, store_events
from tests.postgres import PostgresForTests, running_postgres

#: How long storing is measured without anything beside it, in seconds.
QUIET = 8.0
_OLD = "now() - interval '40 days'"
_FILL = f"""
WITH bodies AS (
    INSERT INTO event_body (extra) SELECT json_build_object('n', n) FROM generate_series(1, $1::int) AS n RETURNING id
), events AS (
    INSERT INTO asset_event (asset_id, body_id, origin, "timestamp")
    SELECT $2, id, 'rest', {_OLD} + id * interval '1 ms' FROM bodies RETURNING id
), identities AS (
    INSERT INTO event_identity SELECT $2, decode(md5(id::text), 'hex'), id, {_OLD} + id * interval '1 ms' FROM events
), groups AS (
    INSERT INTO demand_group (dag_id, position, state, events)
    SELECT 'd', n, 'started', 1 FROM generate_series(1, $1::int) AS n RETURNING id, position
), runs AS (
    INSERT INTO dag_run (dag_id, run_id, dag_version_id, run_type, triggered_by, state, run_after, queued_at,
                         start_date, end_date, conf, group_id)
    SELECT 'd', 'r' || id, $3, 'asset_triggered', 'asset', 'success', {_OLD}, {_OLD}, {_OLD},
           {_OLD} + id * interval '1 ms', '{{}}', id
    FROM groups RETURNING id, group_id
), instances AS (
    INSERT INTO task_instance (dag_run_id, dag_id, run_id, task_id, state, max_tries, pool, pool_slots, queue,
                               priority_weight, operator, end_date)
    SELECT id, 'd', 'r' || group_id, 'work', 'success', 0, 'p', 1, 'q', 1, 'E', {_OLD} FROM runs RETURNING id
), changes AS (
    INSERT INTO state_change (subject, subject_id, to_state)
    SELECT 'run', id, 'running' FROM runs UNION ALL SELECT 'task', id, 'running' FROM instances
), pairs AS (
    SELECT e.id AS event_id, r.id AS run_id, r.group_id, e.n FROM
        (SELECT id, row_number() OVER (ORDER BY id) AS n FROM events) e
        JOIN (SELECT id, group_id, row_number() OVER (ORDER BY id) AS n FROM runs) r USING (n)
), demanded AS (
    INSERT INTO demand (dag_id, event_id, asset_id, arrival, state, group_id)
    SELECT 'd', event_id, $2, n, 'consumed', group_id FROM pairs
)
INSERT INTO dag_run_event SELECT run_id, event_id, 'd', true FROM pairs
"""


async def store_while(database: Database, going: Callable[[], bool]) -> list[float]:
    """Milliseconds that storing an event of a consumed asset took, one after the other with pauses."""
    took = []
    while going():
        began = time.perf_counter()
        await store_events(database, "busy")
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.005)
    return took


def spread(took: list[float]) -> str:
    ordered = sorted(took)
    return (
        f"p50 {ordered[len(ordered) // 2]:.1f} ms, p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms, "
        f"longest {ordered[-1]:.1f} ms of {len(ordered)}"
    )


async def measure(database: Database, count: int) -> None:
    async with database.hot() as hot:
        asset_id = await make_asset(hot, "old")
        version_id = await make_dag(hot, "d", schedule=on_assets("busy"))
        await hot.execute("SET LOCAL statement_timeout = 0")
        await hot.execute(_FILL, count, asset_id, version_id, timeout=600)
        await hot.execute("UPDATE dag SET last_arrival = $1", count)
    async with database.glance() as hot:
        await hot.execute("ANALYZE")
    until = time.perf_counter() + QUIET
    print(f"nothing beside it: {spread(await store_while(database, lambda: time.perf_counter() < until))}")
    now = await server_time(database)
    before = dict.fromkeys((Kind.RUNS, Kind.EVENTS, Kind.IDENTITIES), now - timedelta(days=30))
    for name, rest in (("by hand", None), ("in the background", _rest)):
        part = {kind: moment for kind, moment in before.items() if (kind is Kind.RUNS) == (rest is None)}
        work = cleanings(part, now=now, settings=load_settings(), size=500)
        began = time.perf_counter()
        cleaning = asyncio.create_task(clean(database, work, rest=rest))
        took = await store_while(database, lambda task=cleaning: not task.done())  # type: ignore[misc]
        counts = {kind.value: number for kind, number in (await cleaning).items()}
        seconds = time.perf_counter() - began
        print(f"{name}: {counts} in {seconds:.1f} s ({sum(counts.values()) / seconds:,.0f}/s); storing {spread(took)}")


async def run(server: PostgresForTests, count: int) -> None:
    name = await server.create()
    async with await Database.connect(server.url(name)) as database:
        await measure(database, count)
    await server.drop(name)


if __name__ == "__main__":
    with running_postgres() as postgres:
        asyncio.run(run(postgres, int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))
