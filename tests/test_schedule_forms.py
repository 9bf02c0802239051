"""Several schedulers, one consumer for each form of schedule: each demand and each moment is claimed once.

Whole processes that are killed meanwhile are in tests/chaos; here the schedulers share a process, so that they meet
more often, and many more events are stored.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from app.domain.conditions import clauses
from app.domain.demand import Arrival, batch_groups, group_arrivals
from app.domain.specs import BatchSpec, ScheduleKind, ScheduleSpec
from app.kernel.settings import Settings
from app.services import runs
from app.services.runs import ManualRun
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.databases import database, fetch, notifier
from tests.factories import make_dag, on_assets, parse_condition, store_events, task
from tests.test_scheduler import executing, scheduling
from tests.waiting import eventually

__all__ = ["database", "notifier"]

FORMS = {
    "one": "a",
    "list": "a | b",
    "all": "a & b",
    "mixed": "a & b | c",
    "overlapping": "a & b | b & c",
    "three": "a & b & c",
}
BATCHES = {
    "full": ("a", BatchSpec(max_events=7)),
    "timed": ("a | c", BatchSpec(max_wait=0.2)),
    "either": ("a & b | c", BatchSpec(max_events=3, max_wait=0.15)),
}
DELTA = 0.25


@pytest.mark.parametrize("count", [2, 3])
async def test_each_demand_and_each_moment_is_claimed_once(
    database_url: str, database: Database, notifier: Notifier, settings: Settings, count: int
) -> None:
    chance = Random(count)
    async with database.hot() as hot:
        for dag_id, condition in FORMS.items():
            await make_dag(hot, dag_id, schedule=on_assets(condition), max_active_runs=3)
        for dag_id, (condition, batch) in BATCHES.items():
            await make_dag(hot, dag_id, schedule=on_assets(condition, batch=batch), max_active_runs=2)
        await make_dag(hot, "once", schedule=ScheduleSpec(kind=ScheduleKind.ONCE))
        await make_dag(hot, "continuous", schedule=ScheduleSpec(kind=ScheduleKind.CONTINUOUS), max_active_runs=1)
        await make_dag(hot, "delta", schedule=ScheduleSpec(kind=ScheduleKind.DELTA, delta=DELTA))
        await make_dag(hot, "cron", schedule=ScheduleSpec(kind=ScheduleKind.CRON, cron="* * * * *"))
        await make_dag(hot, "hand", tasks=(task("work", retries=1, retry_delay=0.0),))
        await hot.execute(
            "UPDATE dag SET next_run_at = now(), next_logical_date = now() WHERE dag_id = ANY($1)", CLOCKS
        )
    async with AsyncExitStack() as stack:
        owner = 0
        for _ in range(count):
            own = await stack.enter_async_context(await Database.connect(database_url, pool_size=4))
            waking = await stack.enter_async_context(Notifier.open(own))
            owner = (await stack.enter_async_context(scheduling(own, waking, settings))).id
        await stack.enter_async_context(executing(database, notifier, owner_id=owner))
        for number in range(100):
            await store_events(database, *chance.choices("aaabbc", k=chance.randint(1, 3)))
            notifier.poke("demand")
            if number % 10 == 0:
                await runs.create_manual(database, notifier, ManualRun(dag_id="hand", triggered_by="cli"))
            await asyncio.sleep(chance.uniform(0, 0.03))
        await eventually(lambda: settled(database), 120, what="every run that can be made, ended")
    for dag_id in [*FORMS, *BATCHES]:
        await assert_grouped_as_it_arrived(database, dag_id)
    await assert_moments_claimed_once(database)


CLOCKS = ["once", "continuous", "delta", "cron"]


async def settled(database: Database) -> bool:
    rows = await fetch(
        database,
        """
        SELECT (SELECT count(*) FROM dag_run WHERE end_date IS NULL AND NOT dag_id = ANY($1)),
               (SELECT count(*) FROM dag WHERE has_demand),
               (SELECT count(*) FROM demand_group WHERE state <> 'started'
                AND NOT (state = 'collecting' AND closes_at IS NULL)),
               (SELECT count(*) FROM dag_run WHERE dag_id = 'delta'),
               (SELECT count(*) FROM dag_run WHERE dag_id = 'continuous')
        """,
        CLOCKS,
    )
    active, stirred, waiting, ticks, again = rows[0]
    return not (active or stirred or waiting) and ticks > 3 and again > 3


async def assert_grouped_as_it_arrived(database: Database, dag_id: str) -> None:
    """Each event is the cause of one run of the DAG or waits for an incomplete group; runs are as one planner alone
    would have made them, batches by time apart."""
    rows = await fetch(
        database,
        """
        SELECT d.arrival, d.event_id, a.name, d.state, d.created_at, c.dag_run_id FROM demand d
        JOIN asset a ON a.id = d.asset_id
        LEFT JOIN dag_run_event c ON c.dag_id = d.dag_id AND c.event_id = d.event_id
        WHERE d.dag_id = $1 ORDER BY d.arrival
        """,
        dag_id,
    )
    assert all((row["state"] == "consumed") == (row["dag_run_id"] is not None) for row in rows), dag_id
    found: dict[int, list[int]] = {}
    for row in rows:
        if row["dag_run_id"] is not None:
            found.setdefault(row["dag_run_id"], []).append(row["event_id"])
    condition, batch = BATCHES[dag_id] if dag_id in BATCHES else (FORMS[dag_id], None)
    names = [frozenset(key.name for key in clause) for clause in clauses(parse_condition(condition))]
    arrivals = [
        Arrival(position=row["arrival"], event_id=row["event_id"], asset=row["name"], at=row["created_at"])
        for row in rows
    ]
    groups = group_arrivals(names, arrivals).groups
    made = [found[run] for run in sorted(found)]
    if batch is not None and batch.max_wait is not None:
        complete = sorted(arrival.event_id for group in groups for arrival in group.arrivals)
        assert sorted(event for run in made for event in run) == complete, dag_id
        return
    now = rows[-1]["created_at"]
    assert made == [
        sorted(arrival.event_id for group in each.groups for arrival in group.arrivals)
        for each in batch_groups(batch, groups, now=now)
        if each.closed
    ], dag_id


async def assert_moments_claimed_once(database: Database) -> None:
    counts = {
        row["dag_id"]: (row["runs"], row["dates"])
        for row in await fetch(
            database,
            "SELECT dag_id, count(*) AS runs, count(DISTINCT logical_date) AS dates FROM dag_run "
            "WHERE dag_id = ANY($1) GROUP BY 1",
            CLOCKS,
        )
    }
    assert counts["once"] == (1, 1)
    assert counts["cron"][0] <= 4  # the one that was due, and the minutes that passed
    for dag_id in ("delta", "continuous", "cron"):
        assert counts[dag_id][0] == counts[dag_id][1], dag_id
    assert len(await fetch(database, "SELECT FROM dag_run WHERE dag_id = 'hand'")) == 10
    twice = await fetch(
        database,
        "SELECT subject, subject_id, to_state FROM state_change WHERE to_state IN ('queued', 'running', 'success') "
        "AND subject IN ('run', 'task') GROUP BY 1, 2, 3 HAVING count(*) > 1",
    )
    assert not twice, f"carried out twice: {[tuple(row) for row in twice]}"
    overlapping = await fetch(
        database,
        "SELECT FROM dag_run one JOIN dag_run other ON other.id > one.id AND other.start_date < one.end_date "
        "WHERE one.dag_id = 'continuous' AND other.dag_id = 'continuous'",
    )
    assert not overlapping
