"""What retention leaves alone and what it takes, case by case (every mixture is in test_retention_machine)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.specs import ScheduleKind, ScheduleSpec
from app.kernel.clock import ManualClock, SystemClock
from app.kernel.settings import Settings, load_settings, with_overrides
from app.processes.retention import RetentionKeeper, ages, clean, cleanings
from app.services import leadership, runs
from app.services.events import post_event
from app.services.jobs import JobSession
from app.services.leadership import HOUSEKEEPING
from app.services.retention import Kind, TermOver, clean_batch, server_time
from app.services.runs import ManualRun
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.databases import database, fetch, notifier
from tests.factories import DIGEST, make_asset, make_dag, make_job, on_assets, store_events
from tests.test_scheduler import scheduling
from tests.waiting import eventually

__all__ = ["database", "notifier"]

OLD = "now() - interval '40 days'"


async def clean_before(database: Database, *, days: float = 30, dry_run: bool = False) -> dict[Kind, int]:
    """Clean every kind of what is older than ``days``; what went."""
    now = await server_time(database)
    before = dict.fromkeys(Kind, now - timedelta(days=days))
    found = await clean(database, cleanings(before, now=now, settings=load_settings(), dry_run=dry_run))
    return {kind: count for kind, count in found.items() if count}


async def ids(database: Database, query: str, *values: Any) -> list[Any]:
    return [row[0] for row in await fetch(database, query, *values)]


async def old_run(database: Database, dag_id: str, run_id: str, *, state: str = "success", **columns: str) -> int:
    """A run of long ago with a task instance, an XCom and changes of state; further columns as SQL."""
    ended = OLD if state in {"success", "failed"} else "NULL"
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", {value}" for value in columns.values())
    kind = "'manual'" if "logical_date" not in columns else "'scheduled'"
    [row] = await fetch(
        database,
        f"""
        INSERT INTO dag_run (dag_id, run_id, dag_version_id, run_type, triggered_by, state, run_after, queued_at,
                             end_date, conf{names})
        SELECT $1, $2, current_version_id, {kind}, 'cli', $3, {OLD}, {OLD}, {ended}, '{{}}'{values}
        FROM dag WHERE dag_id = $1 RETURNING id
        """,
        dag_id,
        run_id,
        state,
    )
    await fetch(
        database,
        f"""
        WITH t AS (
            INSERT INTO task_instance (dag_run_id, dag_id, run_id, task_id, state, max_tries, pool, pool_slots, queue,
                                       priority_weight, operator, end_date)
            VALUES ($1, $2, $3, 'work', $4, 0, 'p', 1, 'q', 1, 'E', {ended}) RETURNING id
        ), x AS (
            INSERT INTO xcom (dag_run_id, task_id, key, value, "timestamp") VALUES ($1, 'work', 'k', '1', now())
        ), s AS (INSERT INTO state_change (subject, subject_id, to_state) SELECT 'task', id, 'running' FROM t)
        INSERT INTO state_change (subject, subject_id, to_state) VALUES ('run', $1, 'running')
        """,
        row["id"],
        dag_id,
        run_id,
        state if state in {"success", "failed"} else "none",
    )
    return int(row["id"])


async def make(database: Database, dag_id: str = "d", schedule: ScheduleSpec | None = None) -> None:
    async with database.hot() as hot:
        await make_dag(hot, dag_id, schedule=schedule)


async def test_a_run_goes_with_everything_that_is_its_own(database: Database) -> None:
    await make(database)
    gone = await old_run(database, "d", "old")
    kept = [await old_run(database, "d", name, state=name) for name in ("queued", "running")]
    await fetch(database, "UPDATE dag_run SET start_date = now() - interval '40 days' WHERE state = 'running'")

    assert await clean_before(database, dry_run=True) == {Kind.RUNS: 1}
    assert await clean_before(database) == {Kind.RUNS: 1}

    assert await ids(database, "SELECT id FROM dag_run ORDER BY id") == kept
    for table, column in (("task_instance", "dag_run_id"), ("xcom", "dag_run_id")):
        assert await ids(database, f"SELECT {column} FROM {table} ORDER BY 1") == kept
    assert gone not in await ids(database, "SELECT subject_id FROM state_change WHERE subject = 'run'")
    assert len(await fetch(database, "SELECT FROM state_change")) == 4


async def test_a_run_with_a_part_that_has_not_ended_stays(database: Database) -> None:
    await make(database)
    run = await old_run(database, "d", "marked")
    await fetch(database, "UPDATE task_instance SET state = 'scheduled', end_date = NULL")
    assert await clean_before(database) == {}
    assert await ids(database, "SELECT id FROM dag_run") == [run]


@pytest.mark.parametrize("kind", [ScheduleKind.ONCE, ScheduleKind.CRON])
async def test_the_latest_run_by_the_clock_stays_and_nothing_runs_again(database: Database, kind: ScheduleKind) -> None:
    await make(database, schedule=ScheduleSpec(kind=kind, cron="0 0 * * *" if kind is ScheduleKind.CRON else None))
    for day in range(3):
        await old_run(database, "d", f"day{day}", logical_date=f"timestamptz '2026-01-0{day + 1}'")
    assert await clean_before(database) == {Kind.RUNS: 2}
    assert await ids(database, "SELECT run_id FROM dag_run") == ["day2"]
    assert await clean_before(database) == {}


async def test_what_somebody_works_on_is_left_for_another_time(database: Database) -> None:
    await make(database)
    busy, free = await old_run(database, "d", "busy"), await old_run(database, "d", "free")
    async with database.hot() as hot:
        await hot.execute("SELECT FROM dag_run WHERE id = $1 FOR UPDATE", busy)
        assert await asyncio.wait_for(clean_before(database), 30) == {Kind.RUNS: 1}
    assert await ids(database, "SELECT id FROM dag_run") == [busy]
    assert busy < free
    assert await clean_before(database) == {Kind.RUNS: 1}


async def test_an_event_stays_while_it_waits_or_a_kept_run_names_it(database: Database, notifier: Notifier) -> None:
    from app.services import demand

    await make(database, schedule=on_assets("a & b"))
    await make(database, "asleep", on_assets("a"))
    await fetch(database, "UPDATE dag SET is_paused = true WHERE dag_id = 'asleep'")
    caused = await store_events(database, "a", "b")
    await demand.plan(database, notifier)
    [waiting] = await store_events(database, "b")
    async with database.hot() as hot:
        await make_asset(hot, "lonely")
    [unwanted] = await store_events(database, "lonely")
    await fetch(database, f'UPDATE asset_event SET "timestamp" = {OLD}')

    assert await clean_before(database) == {Kind.EVENTS: 1}
    assert unwanted not in await ids(database, "SELECT id FROM asset_event")

    await fetch(database, f"UPDATE dag_run SET state = 'failed', end_date = {OLD}")
    await fetch(database, f"UPDATE task_instance SET state = 'failed', end_date = {OLD}")
    assert await clean_before(database) == {Kind.RUNS: 1, Kind.EVENTS: 2}
    assert await ids(database, "SELECT id FROM asset_event") == [waiting]
    assert await ids(database, "SELECT event_id FROM demand") == [waiting]
    assert not await fetch(database, "SELECT FROM demand_group")
    assert len(await fetch(database, "SELECT FROM event_body")) == 1
    assert caused[0] < waiting


async def test_what_nothing_refers_to_goes(database: Database) -> None:
    await make(database)
    async with database.hot() as hot:
        gone, owner, leader = [await make_job(hot, ended=True) for _ in range(3)]
        recent = await make_job(hot, ended=True)
        alive = await make_job(hot)
        await hot.execute(f"UPDATE job SET ended_at = {OLD} WHERE id = ANY($1::bigint[])", [gone, owner, leader])
        await hot.execute("INSERT INTO leadership VALUES ('r', $1, 1, now(), now())", leader)
        await hot.execute(
            "INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status, owner_id) "
            "VALUES ('asset', 'i', 'x.Y', '', true, 'running', $1)",
            owner,
        )
        await hot.execute("INSERT INTO bundle VALUES ('unused', 'x.py'), ('of a file', 'y.py'), ('replaced', 'z.py')")
        await hot.execute("INSERT INTO dag_file (path, bundle_digest) VALUES ('y.py', 'of a file')")
        await hot.execute("INSERT INTO dag_file (path) VALUES ('broken.py')")
        await hot.execute(
            "INSERT INTO dag_version (dag_id, version_number, bundle_digest, spec_digest, spec) "
            "VALUES ('d', 0, 'replaced', 's', '{}'), ('d', -1, 'replaced', 't', '{}')"
        )
        await hot.execute(
            'INSERT INTO import_error (filename, message, stack_trace, "timestamp") '
            f"SELECT name, 'm', '', {OLD} FROM unnest(ARRAY['broken.py', 'vanished.py']) AS name"
        )
        await hot.execute(f"INSERT INTO idempotency_key VALUES ('old', '', 1, {OLD}), ('new', '', 1, now())")
        await hot.execute(
            f"INSERT INTO state_change (subject, subject_id, to_state, at) VALUES ('trigger', 1, 'running', {OLD}), "
            "('trigger', 1, 'running', now())"
        )
    run = await old_run(database, "d", "kept", state="queued")
    await fetch(
        database,
        "UPDATE dag_run SET dag_version_id = (SELECT id FROM dag_version WHERE version_number = -1) WHERE id = $1",
        run,
    )
    await fetch(database, f"UPDATE bundle SET created_at = {OLD}")
    await fetch(database, f"UPDATE dag_version SET created_at = {OLD}")

    expected = {
        Kind.IDEMPOTENCY_KEYS: 1,
        Kind.STATE_CHANGES: 1,
        Kind.JOBS: 1,
        Kind.IMPORT_ERRORS: 1,
        Kind.VERSIONS: 1,
        Kind.BUNDLES: 1,
    }
    assert await clean_before(database, dry_run=True) == expected
    assert await clean_before(database) == expected

    assert await ids(database, "SELECT id FROM job ORDER BY id") == [owner, leader, recent, alive]
    assert await ids(database, "SELECT filename FROM import_error") == ["broken.py"]
    assert await ids(database, "SELECT version_number FROM dag_version ORDER BY 1") == [-1, 1]
    assert set(await ids(database, "SELECT digest FROM bundle")) == {DIGEST, "of a file", "replaced"}
    assert await ids(database, "SELECT key FROM idempotency_key") == ["new"]


async def test_a_request_repeated_inside_its_period_has_its_answer_although_the_event_is_gone(
    database: Database, notifier: Notifier
) -> None:
    async with database.hot() as hot:
        asset_id = await make_asset(hot, "a")
    first = await post_event(database, notifier, asset_id=asset_id, extra={"n": 1}, idempotency_key="k")
    await fetch(database, "UPDATE asset_event SET \"timestamp\" = now() - interval '10 days'")
    await fetch(database, "UPDATE idempotency_key SET created_at = now() - interval '10 days'")
    assert await clean_before(database, days=5) == {Kind.EVENTS: 1}
    again = await post_event(database, notifier, asset_id=asset_id, extra={"n": 1}, idempotency_key="k")
    assert (again.event_id, again.created) == (first.event_id, False)


async def test_nothing_is_removed_in_a_term_that_is_over(database: Database, settings: Settings) -> None:
    await make(database)
    await old_run(database, "d", "old")
    async with (
        JobSession.open(database, "scheduler", settings) as job,
        JobSession.open(database, "scheduler", settings) as heir,
    ):
        term = await leadership.hold(database, settings, role=HOUSEKEEPING, owner_id=job.id)
        await fetch(database, "UPDATE leadership SET renewed_at = now() - interval '1 hour'")
        taken = await leadership.hold(database, settings, role=HOUSEKEEPING, owner_id=heir.id)
        now = await server_time(database)
        for holder, removed in ((term, None), (taken, 1)):
            [cleaning] = cleanings({Kind.RUNS: now}, now=now, settings=settings, term=holder)
            if removed is None:
                with pytest.raises(TermOver):
                    await clean_batch(database, cleaning)
            else:
                assert (await clean_batch(database, cleaning)).removed == removed


async def test_by_default_the_record_is_kept_and_book_keeping_is_not(settings: Settings) -> None:
    assert ages(settings).keys() == set(Kind) - {Kind.RUNS, Kind.EVENTS, Kind.DEAD_LETTERS}
    chosen = ages(with_overrides(settings, retention_events_days=7, retention_bookkeeping_days=0))
    assert chosen == {Kind.EVENTS: 7, Kind.IDENTITIES: 14, Kind.IDEMPOTENCY_KEYS: 14}


async def test_the_leader_removes_steadily_and_the_others_do_not(
    database: Database, notifier: Notifier, settings: Settings
) -> None:
    await make(database)
    settings = with_overrides(settings, retention_runs_days=30, retention_interval=0.1)
    first = await old_run(database, "d", "old")
    clock = ManualClock()
    follower = RetentionKeeper(database=database, settings=settings, clock=clock, term=lambda: None)
    assert await follower.run_once() == {}
    assert await ids(database, "SELECT id FROM dag_run") == [first]
    async with scheduling(database, notifier, settings):
        await eventually(lambda: none_left(database))
        await old_run(database, "d", "older")
        await eventually(lambda: none_left(database))


async def none_left(database: Database) -> bool:
    return not await fetch(database, "SELECT FROM dag_run")


async def test_deliveries_and_planning_go_on_while_much_is_removed(
    database: Database, notifier: Notifier, settings: Settings
) -> None:
    async with database.hot() as hot:
        asset_id = await make_asset(hot, "old")
        body = await hot.fetchval("INSERT INTO event_body (extra) VALUES ('{}') RETURNING id")
        await hot.execute(
            f'INSERT INTO asset_event (asset_id, body_id, origin, "timestamp") '
            f"SELECT $1, $2, 'rest', {OLD} FROM generate_series(1, 20000)",
            asset_id,
            body,
        )
    await make(database, schedule=on_assets("a"))
    cleaning = asyncio.create_task(clean_before(database))
    async with scheduling(database, notifier, settings):
        stored = 0
        while not cleaning.done() or stored < 20:
            await store_events(database, "a")
            notifier.poke("demand")
            stored += 1
            await asyncio.sleep(0.01)
        await eventually(lambda: all_caused(database, min(stored, 16)))
    assert (await cleaning)[Kind.EVENTS] == 20000
    assert len(await fetch(database, "SELECT FROM asset_event")) == stored
    assert not await fetch(database, "SELECT FROM event_body WHERE id = $1", body)


async def all_caused(database: Database, wanted: int) -> bool:
    return len(await fetch(database, "SELECT FROM dag_run_event")) >= wanted


async def test_a_run_made_by_hand_for_later_stays(database: Database, notifier: Notifier) -> None:
    await make(database)
    later = datetime.now(UTC) + timedelta(days=400)
    await runs.create_manual(database, notifier, ManualRun(dag_id="d", triggered_by="cli", run_after=later))
    await fetch(database, f"UPDATE dag_run SET queued_at = {OLD}")
    assert await clean_before(database, days=0) == {}
    assert SystemClock().now() < later
