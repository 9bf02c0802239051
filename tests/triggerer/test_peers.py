"""Deaths of peers, seen by those who wait for their session locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import pytest

from app.kernel.settings import Settings, load_settings
from app.processes.triggerer.held import Held
from app.processes.triggerer.peers import Peers
from app.services import jobs, triggers
from app.services.job_peers import PeerWatch
from app.services.jobs import JobSession
from app.services.secrets import Keys
from app.store.database import Database
from app.store.jobs import insert_job, neighbour_of
from app.store.wakeups import Notifier
from tests.triggerer.world import World
from tests.waiting import eventually


@pytest.fixture
def calm(settings: Settings) -> Settings:
    """A lease so long that nothing in a test is explained by it."""
    return load_settings(
        home=settings.home, database_url=settings.database_url, heartbeat_interval=1, lease_heartbeats=3600
    )


@asynccontextmanager
async def mortal(database: Database) -> AsyncIterator[tuple[int, AsyncExitStack]]:
    """A triggerer that is nothing but a row and a lock; it dies when the stack is closed."""
    async with AsyncExitStack() as life:
        session = await life.enter_async_context(database.session())
        job_id = await insert_job(
            session, job_type="triggerer", hostname="h", pid=1, capacity=None, queues=None, team_name=None
        )
        yield job_id, life


async def waiting_for(world: World, job_id: int) -> bool:
    found = await world.value(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted", job_id
    )
    return bool(found)


async def test_a_death_frees_the_triggers_of_the_dead(
    database: Database, notifier: Notifier, world: World, keys: Keys, calm: Settings
) -> None:
    await world.trigger()
    async with mortal(database) as (dead, life), JobSession.open(database, "triggerer", calm) as alive:
        await triggers.claim(database, keys, owner_id=dead, limit=1)
        watching = asyncio.create_task(Peers(database, notifier, calm, job_id=alive.id).watch_for_ever())
        try:
            await eventually(lambda: waiting_for(world, dead))
            assert await world.value("SELECT owner_id FROM trigger") == dead
            await life.aclose()
            await eventually(lambda: world.value("SELECT count(*) FROM trigger WHERE status = 'unassigned'"))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert await world.value("SELECT ended_at IS NOT NULL FROM job WHERE id = $1", dead)
        assert not alive.lease_lost.is_set()


async def test_a_lock_that_was_never_seen_held_is_no_death_before_the_lease(
    database: Database, world: World, calm: Settings
) -> None:
    """The server ended all sessions and let them in again: nobody holds a lock yet, and nobody died."""
    other = await world.job()
    async with PeerWatch.open(database, "triggerer", calm, job_id=await world.job()) as watch:
        assert await watch.wait() == (True, [])
        assert await watch.wait() == (True, [])
        # It was heard of since, and still holds no lock: its process is gone.
        await world.value("UPDATE job SET latest_heartbeat = clock_timestamp()")
        assert await watch.wait() == (True, [other])


async def test_a_short_lease_is_over_although_the_lock_is_held(
    database: Database, world: World, calm: Settings
) -> None:
    short = load_settings(home=calm.home, database_url=calm.database_url, heartbeat_interval=0.1)
    job = await world.job()
    async with mortal(database) as (hung, _), PeerWatch.open(database, "triggerer", short, job_id=job) as watch:
        await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 day' WHERE id = $1", hung)
        await eventually(lambda: _ended(watch, hung), 60)


async def _ended(watch: PeerWatch, job_id: int) -> bool:
    return job_id in (await watch.wait(within=0.1))[1]


async def test_the_peers_are_a_ring(database: Database, world: World) -> None:
    first, second, third = [await world.job() for _ in range(3)]
    await world.job("scheduler")
    async with database.session() as session:
        found = [await neighbour_of(session, job_type="triggerer", job_id=each) for each in (first, second, third)]
        assert [each and each[0] for each in found] == [third, first, second]
        await world.value("UPDATE job SET ended_at = now() WHERE id <> $1", first)
        assert await neighbour_of(session, job_type="triggerer", job_id=first) is None


async def test_who_waits_lets_the_owner_have_its_lock_again(database: Database, world: World, calm: Settings) -> None:
    """Its connection broke, it lives: whoever was faster, the rows say the truth about it."""
    async with (
        JobSession.open(database, "triggerer", calm) as job,
        JobSession.open(database, "triggerer", calm) as peer,
        PeerWatch.open(database, "triggerer", calm, job_id=peer.id) as watch,
    ):
        waiting = asyncio.create_task(watch.wait(within=60))
        await eventually(lambda: waiting_for(world, job.id))
        locked = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = $1"
        await world.value("SELECT pg_terminate_backend($1)", await world.value(locked, job.id))
        _, ended = await waiting
        if ended:
            await eventually(job.lease_lost.is_set)
        else:
            await eventually(lambda: world.value(locked, job.id))


async def test_a_blocker_stays_alone_whoever_owns_it(database: Database, world: World, keys: Keys) -> None:
    trigger = await world.trigger()
    first, second = await world.job(), await world.job()
    (claimed,) = await triggers.claim(database, keys, owner_id=first, limit=1)
    assert not Held.of(claimed).is_alone
    at = {"owner_id": first, "trigger_id": trigger, "epoch": claimed.epoch}
    assert await triggers.record_strikes(database, **at, strikes=2)
    assert await triggers.record_failure(
        database, **at, error="it blocked", next_attempt_at=datetime.now(UTC), quarantined=True
    )
    await world.value("UPDATE job SET ended_at = now() WHERE id = $1", first)
    assert not await triggers.record_strikes(database, **{**at, "owner_id": second}, strikes=0)

    async with Notifier.open(database) as notifier:
        await jobs.retire(database, notifier, first)
    (again,) = await triggers.claim(database, keys, owner_id=second, limit=1)

    held = Held.of(again)
    assert (held.is_alone, held.strikes, again.epoch) == (True, 2, claimed.epoch + 1)
