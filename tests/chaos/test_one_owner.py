"""Point 1: three triggerers, six watchers. No watcher runs twice at a time, owners stay, each message is one event."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from app.processes.triggerer.rebalancing import STEADY
from tests.chaos import figures
from tests.chaos.conftest import MakeFleet
from tests.chaos.fleet import Fleet
from tests.chaos.flow import Flow, end_all
from tests.chaos.ledger import Ledger
from tests.chaos.recorded import Recording

WATCHERS = 6
#: Owners are let settle until they have not changed for so long, in seconds: longer than a surplus is left alone.
SETTLED = STEADY + 3.0
Owners = dict[int, tuple[int, int]]


@pytest.mark.parametrize(
    ("stable", "handovers"),
    [
        pytest.param(5.0, 1, id="short", marks=pytest.mark.timeout(240)),
        pytest.param(90.0, 6, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
    ],
)
async def test_one_owner_each(
    make_fleet: MakeFleet, tmp_path: Path, chance: Random, stable: float, handovers: int
) -> None:
    recording = Recording(tmp_path / "recorded", count=WATCHERS)
    deaths: dict[int, float] = {}
    async with make_fleet() as fleet, Ledger.open(fleet) as ledger, AsyncExitStack() as stack:
        dag_ids = recording.write_pipeline(fleet.pipelines)
        await fleet.start(dag_processor=1, scheduler=1, triggerer=3)
        await fleet.until_dags(dag_ids)
        flows = [
            await stack.enter_async_context(Flow.open(source, ledger, Random(chance.random()), gap=0.3))
            for source in recording.sources.values()
        ]
        owners = await _settled(fleet)
        await _assert_stable(fleet, owners, seconds=stable)
        shares = sorted(sum(owner == job for owner, _ in owners.values()) for job in {o for o, _ in owners.values()})
        figures.record("1 one owner each", f"owners unchanged for {stable:g} s; watchers of each", str(shares))
        for number in range(handovers):
            if number:
                await _settled(fleet)
            await _hand_over(fleet, chance, deaths)
        await end_all(flows, ledger, dag_ids)
        sent = sum(flow.sent for flow in flows)
    recording.assert_never_twice(deaths=deaths)
    ran = {name: recording.intervals(name, deaths=deaths) for name in recording.sources}
    assert all(ran.values())
    assert all(each.until < float("inf") for found in ran.values() for each in found), "a generator was not closed"
    assert recording.kills == 0
    starts = sum(len(found) for found in ran.values())
    figures.record("1 one owner each", f"{handovers} hand-overs", f"{starts} intervals, none overlaps; {sent} messages")


async def _owners(fleet: Fleet) -> Owners:
    rows = await fleet.fetch("SELECT id, owner_id, epoch FROM trigger WHERE status = 'running'")
    return {row["id"]: (row["owner_id"], row["epoch"]) for row in rows}


async def _settled(fleet: Fleet) -> Owners:
    """Once every trigger has an owner and none has changed for a while."""
    until = time.monotonic() + 90
    owners, since = await _owners(fleet), time.monotonic()
    while len(owners) < WATCHERS or time.monotonic() - since < SETTLED:
        assert time.monotonic() < until, f"owners do not settle: {owners}"
        await asyncio.sleep(0.1)
        if (now := await _owners(fleet)) != owners:
            owners, since = now, time.monotonic()
    return owners


async def _assert_stable(fleet: Fleet, owners: Owners, *, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert await _owners(fleet) == owners
        await asyncio.sleep(0.2)


async def _hand_over(fleet: Fleet, chance: Random, deaths: dict[int, float]) -> None:
    """An owner is stopped or killed in the middle of everything, and started again."""
    pid = await fleet.owner_pid(f"watched{chance.randint(1, WATCHERS)}")
    node = fleet.node_of(pid) if pid is not None else chance.choice(fleet.of_kind("triggerer"))
    await asyncio.sleep(chance.uniform(0, 0.5))
    if chance.random() < 0.5:
        node.send(signal.SIGTERM)
        await asyncio.to_thread(node.reap)
    else:
        deaths[node.pid] = node.kill()
    node.start()
    await fleet.until_up(node)
