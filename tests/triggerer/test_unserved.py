"""What no live triggerer serves is seen as such, and only as long as that is so."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.states import ShownTriggerStatus
from app.kernel.settings import Settings, load_settings
from app.services import jobs
from app.services.jobs import Health, JobSession
from app.store.database import Database
from app.store.listings.paging import Paging
from app.store.listings.triggers import list_triggers
from tests.triggerer.stage import Stage
from tests.triggerer.world import World
from tests.waiting import eventually


@pytest.fixture
def calm(settings: Settings) -> Settings:
    """A lease that no busy machine exceeds."""
    return load_settings(home=settings.home, database_url=settings.database_url, heartbeat_interval=20)


async def shown(database: Database, settings: Settings, status: ShownTriggerStatus | None = None) -> dict[int, str]:
    async with database.transaction() as connection:
        page = await list_triggers(connection, Paging(limit=99), lease=settings.lease_seconds, status=status)
    return {row["id"]: row["status"] for row in page.rows}


async def unserved(database: Database, settings: Settings) -> list[tuple[str | None, str | None, int]]:
    found = (await jobs.health(database, settings))["triggerer"].unserved
    return [(each.queue, each.team_name, each.count) for each in found]


async def test_a_queue_and_a_team_are_served_by_those_that_say_so(
    database: Database, world: World, calm: Settings
) -> None:
    plain, queued, teamed, both = [await world.trigger() for _ in range(4)]
    await world.value("UPDATE trigger SET queue = 'q' WHERE id = ANY($1::bigint[])", [queued, both])
    await world.value("UPDATE trigger SET team_name = 't' WHERE id = ANY($1::bigint[])", [teamed, both])
    unwanted = await world.trigger()
    await world.value("UPDATE trigger SET wanted = false, queue = 'elsewhere' WHERE id = $1", unwanted)

    async def waits() -> set[int]:
        everything = await shown(database, calm)
        found = await shown(database, calm, ShownTriggerStatus.UNSERVED)
        assert found == {each: status for each, status in everything.items() if status == "unserved"}
        rest = await shown(database, calm, ShownTriggerStatus.UNASSIGNED)
        assert found.keys() | rest.keys() == everything.keys()
        assert sum(count for _, _, count in await unserved(database, calm)) == len(found)
        return set(found)

    assert await waits() == {plain, queued, teamed, both}
    assert (await jobs.health(database, calm))["triggerer"].status is Health.NONE
    async with JobSession.open(database, "triggerer", calm):
        assert await waits() == {queued, teamed, both}
        assert await unserved(database, calm) == [("q", None, 1), (None, "t", 1), ("q", "t", 1)]
        async with JobSession.open(database, "triggerer", calm, queues=["p", "q"], team_name="t"):
            assert await waits() == {queued, teamed}
        async with JobSession.open(database, "triggerer", calm, queues=["q"]):
            async with JobSession.open(database, "triggerer", calm, team_name="t"):
                assert await waits() == {both}
            # Killed: it does not serve any longer than its lease.
            await world.value("UPDATE job SET latest_heartbeat = now() - interval '1 day' WHERE queues = '{q}'")
            short = load_settings(home=calm.home, database_url=calm.database_url, heartbeat_interval=0.01)
            assert queued in await shown(database, short, ShownTriggerStatus.UNSERVED)


async def test_health_names_each_triggerer_with_what_it_holds(database: Database, world: World, calm: Settings) -> None:
    async with (
        JobSession.open(database, "triggerer", calm, capacity=7, queues=["a", "b"], team_name="t") as job,
        JobSession.open(database, "scheduler", calm) as scheduler,
    ):
        for _ in range(2):
            await world.own(await world.trigger(), job.id)
        health = await jobs.health(database, calm)
        (process,) = health["triggerer"].processes
        assert (process.id, process.capacity, process.held, process.queues, process.team_name, process.status) == (
            job.id, 7, 2, ("a", "b"), "t", Health.HEALTHY,
        )  # fmt: skip
        await world.value("UPDATE job SET latest_progress = now() - interval '1 hour' WHERE id = $1", scheduler.id)
        (process,) = (await jobs.health(database, calm))["scheduler"].processes
        assert (process.status, process.held) == (Health.UNHEALTHY, None), "it is heard of, and does nothing"


async def test_a_triggerer_takes_what_its_queues_name(stage: Stage) -> None:
    queued, asset = await stage.watch("Ticker", pause=3600)
    await stage.world.value("UPDATE trigger SET queue = 'private', team_name = 't' WHERE id = $1", queued)
    stage.notifier.poke("triggers")
    async with stage.running() as everybody:
        plain, _ = await stage.watch("Ticker", pause=3600)
        await eventually(lambda: _status(stage, plain, "running"), 60)
        assert await stage.status(queued) == "unassigned"
        assert everybody.lease is not None
        async with stage.running(of={"queues": ["other", "private"], "team_name": "t"}):
            await stage.events(asset, 1)
            row = await stage.row(queued)
            assert (row["status"], row["owner_id"] == everybody.lease.job.id) == ("running", False)


async def _status(stage: Stage, trigger: int, expected: str) -> Any:
    return await stage.status(trigger) == expected
