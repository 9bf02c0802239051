"""Limits of each trigger: whoever floods waits at its yield, nothing is lost, nobody else waits with it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import psutil
import pytest

from app.processes.triggerer.limits import Allowance, Turns, allowance_for
from tests.triggerer.stage import Stage, runner_pids
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(240)
#: The promise is far below; the rest is room for a machine that does other things.
LONGEST_GAP = 8.0


def test_what_was_spent_beyond_the_rate_is_waited_for() -> None:
    allowance = Allowance(rate=100)
    assert allowance.wait(0) == 0
    allowance.spend(1000, 0)  # What ten seconds of silence saved.
    assert allowance.wait(0) == 0
    allowance.spend(50, 0)
    assert allowance.wait(0) == 0.5
    assert allowance.wait(0.25) == 0.25
    assert allowance.wait(60) == 0
    allowance.spend(1001, 60)
    assert allowance.wait(60) == pytest.approx(0.01)
    unlimited = Allowance(rate=0)
    unlimited.spend(10**9, 0)
    assert unlimited.wait(0) == 0


@pytest.mark.parametrize(
    ("setting", "wish", "rate"),
    [(100, None, 100), (100, 5, 5), (100, 500, 100), (0, 5, 5), (0, None, 0), (100, "5", 100), (100, True, 100)],
)
def test_a_class_may_ask_for_less(setting: float, wish: object, rate: float) -> None:
    assert allowance_for(setting, wish).rate == rate


def test_who_delivered_little_has_its_turn_first() -> None:
    turns = Turns()
    flood = [turns.take(1, events=1000, size=0) for _ in range(3)]
    assert flood == [0, 1000, 2000]
    turns.reached(flood[1])
    assert turns.take(2, events=1, size=0) == 1000
    assert turns.take(2, events=1, size=4096 * 9) == 1001
    assert turns.take(2, events=1, size=0) == 1011
    assert turns.take(1, events=1, size=0) == 3000


async def test_a_flood_beside_others(stage: Stage) -> None:
    """A list of 20,000 and 20 MB, and loops that never wait: all stored, in order, once; a neighbour ticks on."""
    _, ticker_asset = await stage.watch("Ticker", pause=0.2)
    async with stage.running(pending_demand_limit=10**9, trigger_pending_bytes=1 << 20):
        await stage.events(ticker_asset, 5)
        (runner,) = runner_pids()
        flood, flooded = await stage.watch("Floods", count=20_000, bytes=1000, ticks=200)
        _, looped = await stage.watch("Floods", ticks=300)
        _, idling = await stage.watch("Floods", empty=True)
        _, late = await stage.watch("Ticker", pause=1)
        await stage.events(late, 2)
        await _stored(stage, flooded, 20_200)
        await stage.events(looped, 300)
        assert runner_pids() == {runner}
        memory = psutil.Process(runner).memory_info().rss
        ticks = await stage.world.payloads(ticker_asset)
    payloads = await stage.world.payloads(flooded)
    assert [each["n"] for each in payloads] == list(range(20_200))
    row = await stage.row(flood)
    assert (row["events"], row["duplicates"], row["restarts"]) == (20_200, 0, 0)
    assert await stage.world.value("SELECT position::text FROM source_position WHERE trigger_id = $1", flood) == "20000"
    assert await stage.world.payloads(idling) == []
    gap = max(later["at"] - earlier["at"] for earlier, later in pairwise(ticks))
    print(f"longest gap of a tick each 0.2 s beside the flood: {gap:.2f} s; the runner holds {memory >> 20} MiB")
    assert gap < LONGEST_GAP
    assert memory < 400 << 20


async def test_who_is_too_fast_waits_and_is_shown(stage: Stage) -> None:
    slow, asset = await stage.watch("Paced", count=130)
    other, _ = await stage.watch("Floods", ticks=5)
    async with stage.running():
        reason = await eventually(
            lambda: stage.world.value("SELECT throttled_reason FROM trigger WHERE id = $1", slow), 60
        )
        assert reason == "it yields more than 10 events a second"
        row = await stage.row(slow)
        assert (row["status"], row["throttled_since"] is not None) == ("running", True)
        payloads = await stage.events(asset, 130)
        assert [each["n"] for each in payloads] == list(range(130))

        async def waits_no_more() -> bool:
            row = await stage.row(slow)
            return row["throttled_reason"] is None and row["throttled_since"] is None

        await eventually(waits_no_more, 60)
        assert (await stage.row(other))["throttled_reason"] is None
    assert "waits at its yield: it yields more than 10 events a second" in stage.log(slow)


async def test_a_trigger_that_is_stopped_while_it_waits_loses_nothing(stage: Stage) -> None:
    slow, asset = await stage.watch("Paced", count=180)
    async with stage.running():
        await eventually(lambda: stage.world.value("SELECT throttled_reason FROM trigger WHERE id = $1", slow), 60)
    row = await stage.row(slow)
    assert (row["status"], row["throttled_reason"], row["throttled_since"]) == ("unassigned", None, None)
    async with stage.running():
        payloads = await stage.events(asset, 180)
    assert [each["n"] for each in payloads] == list(range(180))


async def test_who_waits_for_a_consumer_is_shown(stage: Stage) -> None:
    flood, asset = await stage.watch("Floods", ticks=200)
    async with stage.running(pending_demand_limit=20):
        find = "SELECT throttled_reason FROM trigger WHERE id = $1"
        assert await eventually(lambda: stage.world.value(find, flood), 60) == "a consumer has too many events waiting"
        await stage.world.fetch("UPDATE dag SET is_paused = true")
        await stage.events(asset, 200)

        async def waits_no_more() -> bool:
            return await stage.world.value(find, flood) is None

        await eventually(waits_no_more, 60)


async def test_nothing_of_a_list_with_a_stranger_is_stored(stage: Stage) -> None:
    mixed, asset = await stage.watch("Mixed")
    async with stage.running(trigger_pending_events=10):
        assert "run() yielded a str of length 8" in await stage.error(mixed)
    assert await stage.world.payloads(asset) == []


async def test_a_parted_list_whose_owner_is_replaced_is_stored_once(stage: Stage) -> None:
    flood, asset = await stage.watch("Floods", count=3000)
    async with stage.running(trigger_pending_events=50):
        await stage.events(asset, 200)
        (runner,) = runner_pids()
        psutil.Process(runner).kill()
        payloads = await stage.events(asset, 3000)
    assert [each["n"] for each in payloads] == list(range(3000))
    assert (await stage.row(flood))["restarts"] >= 1


async def test_a_failed_trigger_is_started_by_hand(stage: Stage, tmp_path: Any) -> None:
    from app.services.trigger_limits import NothingToRetry, ask_for_retry

    path = tmp_path / "bad"
    path.touch()
    bad, asset = await stage.watch("BadConstructor", path=str(path), how="value")
    async with stage.running(trigger_restart_min=3600, trigger_restart_max=3600):
        await stage.error(bad)
        path.unlink()
        assert await stage.status(bad) == "backing_off"
        await ask_for_retry(stage.database, stage.notifier, trigger_id=bad)
        assert await stage.events(asset, 1) == ["built"]
        row = await stage.row(bad)
        assert (row["status"], row["retry_requested_at"], row["restarts"]) == ("running", None, 1)
        with pytest.raises(NothingToRetry, match=f"Trigger {bad} is running"):
            await ask_for_retry(stage.database, stage.notifier, trigger_id=bad)


async def _stored(stage: Stage, asset: int, count: int) -> None:
    """So many events of the asset are stored."""

    async def enough() -> bool:
        return bool(await stage.world.value("SELECT count(*) FROM asset_event WHERE asset_id = $1", asset) >= count)

    await eventually(enough, 120)
