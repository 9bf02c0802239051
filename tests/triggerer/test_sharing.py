"""Several triggerers share what there is, in one process with runners of their own."""

from __future__ import annotations

import asyncio

import pytest

from app.processes.triggerer.rebalancing import STEADY
from tests.triggerer.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)
MANY = 60


async def spread(stage: Stage) -> list[int]:
    """How many running triggers each live triggerer has, fewest first; none while some trigger is owned by nobody."""
    rows = await stage.world.fetch(
        "SELECT (SELECT count(*) FROM trigger t WHERE t.owner_id = j.id AND t.status = 'running') AS held "
        "FROM job j WHERE j.ended_at IS NULL AND j.job_type = 'triggerer' ORDER BY held"
    )
    found = [int(row["held"]) for row in rows]
    return found if sum(found) == MANY else []


async def test_a_new_triggerer_gets_its_share_and_each_trigger_moves_once(stage: Stage) -> None:
    for _ in range(MANY):
        await stage.watch("Ticker", pause=3600)

    async def shared() -> bool:
        found = await spread(stage)
        return len(found) == 2 and found[0] >= 0.4 * MANY

    async with stage.running():
        await eventually(lambda: spread(stage), 60)
        async with stage.running():
            assert await eventually(shared, 60)
            # Started where it went only after it had ended where it was: one event each time.
            await eventually(lambda: stage.world.value("SELECT count(*) >= $1 FROM asset_event", MANY), 60)
            assert await stage.world.value("SELECT max(epoch) FROM trigger") == 2
            assert await stage.world.value("SELECT count(*) FROM trigger WHERE epoch = 2") <= 0.6 * MANY
            moved = await stage.world.fetch("SELECT id, epoch FROM trigger ORDER BY id")
            await asyncio.sleep(STEADY + 2)  # long enough for another decision
            assert await stage.world.fetch("SELECT id, epoch FROM trigger ORDER BY id") == moved
        assert await eventually(lambda: spread(stage), 60) == [MANY]


async def test_triggerers_that_start_together_share_at_once(stage: Stage) -> None:
    async with stage.running(), stage.running():
        await eventually(lambda: stage.world.value("SELECT count(*) = 2 FROM job WHERE ended_at IS NULL"), 60)
        first, _ = await stage.watch("Ticker", pause=3600)
        await stage.world.value(
            "INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status) "
            "SELECT kind, left(md5(n::text) || identity, 64), classpath, kwargs, true, 'unassigned' "
            "FROM trigger, generate_series(2, $2::int) n WHERE id = $1",
            first,
            MANY,
        )
        stage.notifier.poke("triggers")
        found = await eventually(lambda: spread(stage), 60)
        assert found is not None
        assert found[0] >= 0.4 * MANY
        assert await stage.world.value("SELECT max(epoch) FROM trigger") == 1
