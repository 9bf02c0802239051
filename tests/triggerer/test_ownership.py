"""Leases, claims and fencing, on a real database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.kernel.settings import Settings, load_settings
from app.services import jobs, triggers
from app.services.jobs import Health, JobSession
from app.services.secrets import Keys
from app.store import jobs as statements
from app.store.database import Database, HotConnection
from app.store.wakeups import Notifier
from tests.triggerer.world import World
from tests.waiting import eventually


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Short heartbeats; the lease stays long enough for a busy machine."""
    return load_settings(
        home=settings.home, database_url=settings.database_url, heartbeat_interval=0.2, lease_heartbeats=50
    )


async def test_a_session_is_seen_and_ends_cleanly(database: Database, world: World, quick: Settings) -> None:
    async with JobSession.open(database, "triggerer", quick, capacity=7, queues=["a"]) as job:
        row = (await world.fetch("SELECT * FROM job"))[0]
        assert (row["id"], row["capacity"], row["queues"], row["ended_at"]) == (job.id, 7, ["a"], None)
        assert (
            await world.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1", job.id) == 1
        )
        seen = row["latest_progress"]
        job.progress()

        async def heard() -> bool:
            job.progress()
            row = (await world.fetch("SELECT latest_progress, latest_heartbeat FROM job"))[0]
            return bool(row[0] > seen)

        assert await eventually(heard)
        assert not job.lease_lost.is_set()
    assert await world.value("SELECT ended_at FROM job") is not None
    assert await world.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_a_session_outlives_a_server_that_goes_away_again_while_it_reconnects(
    database: Database, world: World, quick: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler would have ended itself, with the attempts it runs."""
    hold, broken = statements.hold_job_lock, asyncio.Event()

    async def hold_or_break(session: HotConnection, *, job_id: int) -> bool:
        if not broken.is_set():
            broken.set()
            session.terminate()
        return await hold(session, job_id=job_id)

    monkeypatch.setattr(statements, "hold_job_lock", hold_or_break)
    async with JobSession.open(database, "scheduler", quick, patient=True) as job:
        held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1"
        first = await world.value(held, job.id)
        await world.value("SELECT pg_terminate_backend($1)", first)
        await eventually(lambda: world.value(held + " AND pid <> $2", job.id, first))
        assert broken.is_set()
        assert not job.lease_lost.is_set()


async def test_a_session_ended_by_a_peer_is_lost(database: Database, world: World, quick: Settings) -> None:
    async with JobSession.open(database, "triggerer", quick) as job:
        await world.value("UPDATE job SET ended_at = now()")
        async with asyncio.timeout(30):
            await job.lease_lost.wait()


async def test_a_session_outlives_its_connection(database: Database, world: World, quick: Settings) -> None:
    async with JobSession.open(database, "triggerer", quick) as job:
        held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1"
        pid = await world.value(held, job.id)
        await world.value("SELECT pg_terminate_backend($1)", pid)

        async def held_again() -> bool:
            return bool(await world.fetch(held + " AND pid <> $2", job.id, pid))

        assert await eventually(held_again)
        before = job.confirmed_at
        await eventually(lambda: job.confirmed_at > before)
        assert not job.lease_lost.is_set()


async def test_a_lease_that_was_reconnected_keeps_its_connection(
    database: Database, world: World, settings: Settings
) -> None:
    """The limit of getting a connection is none for keeping it."""
    brief = load_settings(home=settings.home, database_url=settings.database_url, heartbeat_interval=0.5)
    async with JobSession.open(database, "scheduler", brief, patient=True) as job:
        held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND pid <> $2"
        first = await world.value("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1", job.id)
        await world.value("SELECT pg_terminate_backend($1)", first)
        second = await eventually(lambda: world.value(held, job.id, first))
        until = time.monotonic() + 3 * brief.lease_seconds
        await eventually(lambda: job.confirmed_at > until)
        assert await world.value(held, job.id, first) == second


@asynccontextmanager
async def locked_out(database: Database, world: World, job: JobSession) -> AsyncIterator[None]:
    """A lock held by a stranger keeps the session from being confirmed, as an absent server does."""
    async with database.session() as stranger:
        pid = await world.value("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1", job.id)
        waiting = asyncio.create_task(stranger.execute("SELECT pg_advisory_lock(7301, $1)", job.id))
        await eventually(
            lambda: world.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        )
        await world.value("SELECT pg_terminate_backend($1)", pid)
        await waiting
        yield


@pytest.fixture
def short(settings: Settings) -> Settings:
    """A lease of 0.6 s."""
    return load_settings(home=settings.home, database_url=settings.database_url, heartbeat_interval=0.2)


async def test_a_session_without_a_server_is_lost_after_its_lease(
    database: Database, world: World, short: Settings
) -> None:
    async with JobSession.open(database, "triggerer", short) as job, locked_out(database, world, job):
        async with asyncio.timeout(30):
            await job.lease_lost.wait()


async def test_a_patient_session_is_lost_only_to_a_peer(database: Database, world: World, short: Settings) -> None:
    async with JobSession.open(database, "scheduler", short, patient=True) as job:
        async with locked_out(database, world, job):
            away_since = job.confirmed_at
            await eventually(lambda: time.monotonic() - away_since > 3 * short.lease_seconds)
        await eventually(lambda: job.confirmed_at > away_since + short.lease_seconds)
        assert not job.lease_lost.is_set()
        # The connection it has now stays, however long.
        holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1"
        pid, since = await world.value(holder, job.id), job.confirmed_at
        await eventually(lambda: job.confirmed_at > since + 3 * short.lease_seconds)
        assert await world.value(holder, job.id) == pid
        await world.value("UPDATE job SET ended_at = now()")
        async with asyncio.timeout(30):
            await job.lease_lost.wait()


async def test_claims_are_disjoint_and_bounded(database: Database, world: World, keys: Keys) -> None:
    for _ in range(30):
        await world.trigger(kwargs={"secret": "x"})
    one, two = await world.job(), await world.job()

    claims = await asyncio.gather(
        *(triggers.claim(database, keys, owner_id=owner, limit=10) for owner in (one, two, one, two))
    )

    ids = [each.id for claim in claims for each in claim]
    assert len(ids) == len(set(ids)) == 30
    assert all(len(claim) <= 10 for claim in claims)
    assert {each.epoch for claim in claims for each in claim} == {1}
    assert claims[0][0].kwargs == '{"secret":"x"}'
    assert await world.value("SELECT count(*) FROM state_change WHERE subject = 'trigger'") == 30
    assert await world.value("SELECT min(start_count) FROM trigger") == 1


async def test_queues_teams_and_unwanted_triggers_are_respected(database: Database, world: World, keys: Keys) -> None:
    plain, queued, teamed, unwanted = [await world.trigger() for _ in range(4)]
    await world.value("UPDATE trigger SET queue = 'q' WHERE id = $1", queued)
    await world.value("UPDATE trigger SET team_name = 't' WHERE id = $1", teamed)
    await world.value("UPDATE trigger SET wanted = false WHERE id = $1", unwanted)
    job = await world.job()

    assert [each.id for each in await triggers.claim(database, keys, owner_id=job, limit=9, queues=["q", "r"])] == [
        queued
    ]
    assert [each.id for each in await triggers.claim(database, keys, owner_id=job, limit=9, team_name="t")] == [teamed]
    assert [each.id for each in await triggers.claim(database, keys, owner_id=job, limit=9)] == [plain]


async def test_what_a_claim_brings(database: Database, world: World, keys: Keys) -> None:
    asset = await world.asset()
    trigger = await world.trigger()
    watcher = await world.watcher(asset, trigger, when="a")
    await world.value(
        "INSERT INTO source_position (trigger_id, source, lane, position, updated_at) "
        "VALUES ($1, 's', '0', '{\"at\":1}', now())",
        trigger,
    )
    job = await world.job()

    (claimed,) = await triggers.claim(database, keys, owner_id=job, limit=1)

    assert [(each.id, each.asset_id, each.when) for each in claimed.watchers] == [(watcher, asset, "a")]
    assert claimed.positions == {"s": {"0": '{"at":1}'}}


async def test_a_changed_key_fails_that_trigger_only(database: Database, world: World, keys: Keys) -> None:
    trigger = await world.trigger()
    await world.value("UPDATE trigger SET kwargs = 'nonsense' WHERE id = $1", trigger)
    await world.trigger()
    job = await world.job()
    claimed = await triggers.claim(database, keys, owner_id=job, limit=9)
    assert [each.kwargs for each in claimed] == [None, "{}"]


async def test_transitions_are_guarded(
    database: Database, notifier: Notifier, world: World, keys: Keys, settings: Settings
) -> None:
    trigger = await world.trigger()
    job, peer = await world.job(), await world.job()
    (claimed,) = await triggers.claim(database, keys, owner_id=job, limit=1)
    at: dict[str, Any] = {"owner_id": job, "trigger_id": trigger, "epoch": claimed.epoch}
    soon = await world.value("SELECT now() + interval '1 minute'")

    assert await triggers.record_failure(database, **at, error="b\0ad", next_attempt_at=soon)
    row = (await world.fetch("SELECT status, next_attempt_at, last_error, consecutive_errors FROM trigger"))[0]
    assert tuple(row) == ("backing_off", soon, "b\\x00ad", 1)
    assert await triggers.mark_running(database, owner_id=job, triggers=[(trigger, claimed.epoch)]) == {trigger: {}}
    assert tuple((await world.fetch("SELECT status, restarts, start_count FROM trigger"))[0]) == ("running", 1, 2)
    stale = {**at, "owner_id": peer}
    assert not await triggers.record_failure(database, **stale, error="x", next_attempt_at=soon)
    assert await triggers.mark_running(database, owner_id=peer, triggers=[(trigger, claimed.epoch)]) == {}
    assert await triggers.release(database, notifier, owner_id=peer, triggers=[(trigger, claimed.epoch)]) == set()
    assert await triggers.release(database, notifier, owner_id=job, triggers=[(trigger, claimed.epoch)]) == {trigger}
    assert await world.value("SELECT status FROM trigger") == "unassigned"


async def test_a_dead_owner_is_fenced_at_once_and_a_live_one_never(
    database: Database, notifier: Notifier, world: World, keys: Keys, quick: Settings
) -> None:
    for _ in range(2):
        await world.trigger()
    async with JobSession.open(database, "triggerer", quick) as alive:
        dead = await world.job()  # A row whose lock nobody holds: its process was killed.
        await triggers.claim(database, keys, owner_id=dead, limit=1)
        (kept,) = await triggers.claim(database, keys, owner_id=alive.id, limit=1)

        freed = await jobs.fence_dead_owners(database, notifier, quick, self_id=alive.id)

        assert len(freed) == 1
        assert await world.value("SELECT owner_id FROM trigger WHERE id = $1", kept.id) == alive.id
        assert await world.value("SELECT ended_at FROM job WHERE id = $1", dead) is not None
        assert await jobs.fence_dead_owners(database, notifier, quick) == []


async def test_a_restarted_server_is_no_mass_death(
    database: Database, notifier: Notifier, world: World, keys: Keys, quick: Settings, short: Settings
) -> None:
    """After a restart nobody holds a lock; a heartbeat from before it counts until a lease after it."""
    await world.trigger()
    job = await world.job()
    await triggers.claim(database, keys, owner_id=job, limit=1)
    await world.value("UPDATE job SET latest_heartbeat = pg_postmaster_start_time() - interval '1 second'")
    patient = load_settings(home=quick.home, database_url=quick.database_url, heartbeat_interval=3600)

    assert await jobs.fence_dead_owners(database, notifier, patient) == []

    # However long it was away: everybody has a whole lease from its start to be heard again.
    await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 day'")
    assert await jobs.fence_dead_owners(database, notifier, patient) == []
    assert len(await jobs.fence_dead_owners(database, notifier, short)) == 1


async def test_the_rows_of_killed_servers_are_ended_after_a_long_silence(
    database: Database, world: World, short: Settings
) -> None:
    kinds = ("api_server", "dag_processor", "scheduler", "triggerer")
    jobs_of = {kind: await world.job(kind) for kind in kinds}
    assert await jobs.end_silent(database, short) == []  # nobody has been silent for long
    await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 day'")
    silent = {jobs_of["api_server"], jobs_of["dag_processor"]}
    impatient = short.model_copy(update={"heartbeat_interval": 0.001})
    await eventually(lambda: _ended(database, impatient, silent))
    assert await world.value("SELECT count(*) FROM job WHERE ended_at IS NULL") == 2


async def _ended(database: Database, settings: Settings, expected: set[int]) -> bool:
    return set(await jobs.end_silent(database, settings)) == expected


async def test_health_tells_progress(database: Database, world: World, quick: Settings) -> None:
    async def status() -> Health:
        return (await jobs.health(database, quick))["scheduler"].status

    assert await status() is Health.NONE
    job = await world.job("scheduler")
    assert await status() is Health.HEALTHY
    await world.value("UPDATE job SET latest_progress = now() - interval '1 hour'")
    assert await status() is Health.UNHEALTHY
    other = await world.job("scheduler")
    assert await status() is Health.HEALTHY
    await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 hour' WHERE id = $1", job)
    found = (await jobs.health(database, quick))["scheduler"]
    assert [process.id for process in found.processes] == [other]
    await world.value("UPDATE job SET ended_at = now()")
    assert await status() is Health.NONE


async def test_pressure_counts_what_waits_for_a_run(database: Database, world: World) -> None:
    busy, idle, asleep = [await world.asset() for _ in range(3)]
    for dag_id, asset in (("busy", busy), ("idle", idle)):
        await world.dag(dag_id, asset)
    await world.dag("asleep", asleep, paused=True)
    triggers_of = {asset: await world.trigger(asset) for asset in (busy, idle, asleep)}
    await world.value("UPDATE dag SET last_arrival = 100")
    await world.value("INSERT INTO demand_group (dag_id, position, state, events) VALUES ('busy', 1, 'ready', 7)")
    await world.value("INSERT INTO demand_group (dag_id, position, state, events) VALUES ('idle', 1, 'started', 7)")
    ids = list(triggers_of.values())
    assert await triggers.saturated(database, trigger_ids=ids, limit=7) == {triggers_of[busy]}
    assert await triggers.saturated(database, trigger_ids=ids, limit=8) == set()
