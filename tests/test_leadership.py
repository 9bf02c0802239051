"""One scheduler keeps house: roles, terms, and what happens when their holder is gone."""

from __future__ import annotations

import asyncio

from app.kernel.clock import SystemClock
from app.kernel.settings import Settings
from app.processes.scheduler.housekeeping import Housekeeper
from app.processes.scheduler.planning import Planner
from app.services import leadership, tasks
from app.services.jobs import JobSession
from app.services.leadership import HOUSEKEEPING, Term
from app.services.tasks import StartedAttempt
from app.store import leadership as statements
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.databases import database, fetch, notifier
from tests.factories import make_dag, make_job, on_assets, store_events, task
from tests.test_scheduler import executing, scheduling
from tests.waiting import eventually

__all__ = ["database", "notifier"]


async def hold(database: Database, settings: Settings, owner_id: int, known: Term | None = None) -> Term | None:
    return await leadership.hold(database, settings, role=HOUSEKEEPING, owner_id=owner_id, known=known)


async def renewed(database: Database, term: Term) -> bool:
    async with database.glance() as hot:
        return await statements.renew(hot, term=term)


async def test_one_of_many_leads_and_the_next_has_a_higher_term(database: Database, settings: Settings) -> None:
    async with JobSession.open(database, "scheduler", settings) as second:
        async with JobSession.open(database, "scheduler", settings) as first:
            led = await hold(database, settings, first.id)
            assert led == Term(role=HOUSEKEEPING, owner_id=first.id, number=1)
            assert await hold(database, settings, second.id) is None
            assert await hold(database, settings, first.id, led) == led
        # Its process has ended.
        taken = await hold(database, settings, second.id)
        assert taken == Term(role=HOUSEKEEPING, owner_id=second.id, number=2)
        assert not await renewed(database, led)


async def test_those_who_come_together_get_one_leader(database: Database, settings: Settings) -> None:
    async with JobSession.open(database, "scheduler", settings) as one, asyncio.TaskGroup() as group:
        others = [group.create_task(_keep(database, settings)) for _ in range(3)]
        await eventually(lambda: _count(database, "SELECT count(*) FROM job", 4))
        ids = [row["id"] for row in await fetch(database, "SELECT id FROM job")]
        for _ in range(5):
            terms = await asyncio.gather(*(hold(database, settings, job_id) for job_id in ids))
            assert sum(term is not None for term in terms) == 1
            await fetch(database, "UPDATE leadership SET renewed_at = now() - interval '1 hour'")
        [row] = await fetch(database, "SELECT term FROM leadership")
        assert row["term"] == 5
        assert one.id in ids
        for other in others:
            other.cancel()


async def _keep(database: Database, settings: Settings) -> None:
    async with JobSession.open(database, "scheduler", settings):
        await asyncio.Event().wait()


async def _count(database: Database, query: str, wanted: int) -> bool:
    return bool((await fetch(database, query))[0][0] == wanted)


async def test_a_leader_killed_a_moment_ago_is_replaced_at_once(database: Database, settings: Settings) -> None:
    async with database.hot() as hot:
        killed = await make_job(hot)  # no session holds its lock
    assert await hold(database, settings, killed) is not None
    async with JobSession.open(database, "scheduler", settings) as heir:
        term = await hold(database, settings, heir.id)
        assert term is not None
        assert term.number == 2
        [row] = await fetch(database, "SELECT ended_at FROM job WHERE id = $1", killed)
        assert row["ended_at"] is None  # ending it is what the heir does next


async def test_a_leader_that_lives_and_neglects_its_role_is_replaced(database: Database, settings: Settings) -> None:
    async with (
        JobSession.open(database, "scheduler", settings) as stuck,
        JobSession.open(database, "scheduler", settings) as heir,
    ):
        led = await hold(database, settings, stuck.id)
        assert led is not None
        await fetch(database, "UPDATE leadership SET renewed_at = now() - interval '1 hour'")
        assert await hold(database, settings, stuck.id, led) == led  # nobody took it over yet
        await fetch(database, "UPDATE leadership SET renewed_at = now() - interval '1 hour'")
        assert await hold(database, settings, heir.id) is not None
        assert not await renewed(database, led)
        assert await hold(database, settings, stuck.id, led) is None


async def test_who_ended_does_not_lead(database: Database, settings: Settings) -> None:
    async with database.hot() as hot:
        ended = await make_job(hot, ended=True)
    assert await hold(database, settings, ended) is None
    async with JobSession.open(database, "scheduler", settings) as job:
        term = await hold(database, settings, job.id)
        assert term is not None
        await fetch(database, "UPDATE job SET ended_at = now() WHERE id = $1", job.id)
        assert await hold(database, settings, job.id, term) is None


async def test_an_answer_that_was_lost_does_not_leave_the_role_vacant(database: Database, settings: Settings) -> None:
    async with JobSession.open(database, "scheduler", settings) as job:
        await hold(database, settings, job.id)
        again = await hold(database, settings, job.id)
        assert again is not None
        assert again.number == 2


async def test_only_the_leader_brings_attempts_back_and_its_heir_does_so_after_it(
    database: Database, notifier: Notifier, settings: Settings
) -> None:
    async with database.hot() as hot:
        await make_dag(
            hot, "d", schedule=on_assets("a"), tasks=(task("work", retries=1, retry_delay=0.0),), max_active_runs=16
        )
        leader = await make_job(hot)  # killed: its heartbeat is fresh and its lock is free
    await store_events(database, "a")
    await Planner(database=database, notifier=notifier, clock=SystemClock()).run_once(by_clock=True)
    [order] = await tasks.claim(database, owner_id=leader, limit=1)
    attempt = StartedAttempt(task_instance_id=order.task_instance_id, epoch=order.epoch)
    await tasks.mark_running(database, owner_id=leader, attempts=[attempt])

    async with JobSession.open(database, "scheduler", settings) as other:
        term = await hold(database, settings, other.id)
        async with JobSession.open(database, "scheduler", settings) as follower:
            keeper = Housekeeper(database=database, notifier=notifier, settings=settings, job_id=follower.id)
            assert await keeper.run_once() == 0
            assert keeper.term is None
        assert await hold(database, settings, other.id, term) == term
    await fetch(database, "UPDATE leadership SET owner_id = $1", leader)

    async with (
        scheduling(database, notifier, settings) as job,
        executing(database, notifier, owner_id=job.id) as done,
    ):
        await eventually(lambda: len(done) == 1)
        assert done[0].try_number == 2
        [row] = await fetch(database, "SELECT owner_id, term FROM leadership")
        assert (row["owner_id"], row["term"]) == (job.id, 2)
