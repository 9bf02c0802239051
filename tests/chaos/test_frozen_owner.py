"""Point 3: an owner stands still until it is replaced, and wakes up. It changes nothing any more, silently."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from app.kernel.crash_points import Action, CrashPoint
from app.kernel.settings import load_settings
from tests.chaos import audit, figures
from tests.chaos.conftest import MakeFleet
from tests.chaos.fleet import Fleet
from tests.chaos.flow import Flow
from tests.chaos.ledger import Ledger
from tests.chaos.nodes import Node
from tests.chaos.recorded import Recording
from tests.waiting import eventually

#: What the brief of the suite allows beyond the lease, in seconds: an aim.
ALLOWANCE = 2.0
WATCHER = "watched1"
#: Where the owner stands still: anywhere (with its runners, or without), or with a message half done.
PLACES = ("whole", "parent", CrashPoint.RECEIVED, CrashPoint.STORE_UNCOMMITTED, CrashPoint.STORED)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param((CrashPoint.STORE_UNCOMMITTED,), id="short", marks=pytest.mark.timeout(240)),
        pytest.param(PLACES, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
    ],
)
async def test_a_frozen_owner_changes_nothing(
    make_fleet: MakeFleet, tmp_path: Path, chance: Random, places: tuple[str, ...]
) -> None:
    recording = Recording(tmp_path / "recorded", count=1)
    lease = load_settings().lease_seconds
    async with make_fleet() as fleet:
        dag_ids = recording.write_pipeline(fleet.pipelines)
        await fleet.start(dag_processor=1, scheduler=1, triggerer=2)
        await fleet.until_dags(dag_ids)
        await audit.install(fleet)
        async with Ledger.open(fleet) as ledger, Flow.open(recording.sources[WATCHER], ledger, chance, gap=1) as flow:
            flow.pause()
            await ledger.until_stored(WATCHER, await flow.send_one())
            for place in places:
                waited = await _freeze_and_thaw(fleet, flow, recording, place)
                figures.record(
                    "3 owner frozen",
                    f"{place}, SIGSTOP to take-over (lease {lease:g} s)",
                    figures.aimed(waited, lease + ALLOWANCE),
                )
            await ledger.until_all_stored()
            await ledger.assert_each_event_once(WATCHER)
            await ledger.assert_each_run_once(WATCHER, *dag_ids)
    assert recording.kills == 0


async def _freeze_and_thaw(fleet: Fleet, flow: Flow, recording: Recording, place: str) -> float:
    """Seconds from SIGSTOP to the take-over."""
    await _until_both_hold_a_lease(fleet)
    owner = await fleet.owner(WATCHER)
    job = await fleet.value("SELECT id FROM job WHERE pid = $1 AND ended_at IS NULL", owner.pid)
    before = await fleet.value("SELECT epoch FROM trigger")
    frozen_at = await _freeze(fleet, flow, owner, place)
    waiting = await flow.send_one()  # for whoever takes over
    taken_at = await _taken_over(fleet, before)
    await flow.ledger.until_stored(WATCHER, waiting)
    since = await audit.place(fleet)
    runs = len(recording.intervals(WATCHER))
    owner.thaw()

    async def leased_anew() -> int | None:
        found: int | None = await fleet.value(
            "SELECT id FROM job WHERE pid = $1 AND ended_at IS NULL AND id > $2", owner.pid, job
        )
        return found

    newer = await eventually(leased_anew, 60, what="a new lease of the old owner")
    # Whatever it had in hand is thrown away by now; the next message has one owner.
    await flow.ledger.until_stored(WATCHER, await flow.send_one())
    await eventually(lambda: _all_but_one_stopped(recording), 60, what="the end of the old generator")
    written = await audit.writes_of(fleet, owner, after=since, but_owner=[newer])
    assert not written, f"written by the old owner after it woke up: {written}"
    assert len(recording.intervals(WATCHER)) == runs
    return taken_at - frozen_at


async def _freeze(fleet: Fleet, flow: Flow, owner: Node, place: str) -> float:
    if place not in {point.value for point in CrashPoint}:
        owner.freeze(children=place == "whole")
        return time.monotonic()
    held = fleet.points.arm(CrashPoint(place), victim=owner.pid, action=Action.HOLD)
    await flow.send_one()
    await held.wait()
    owner.freeze()
    held.go_on()  # as soon as it wakes up
    return time.monotonic()


async def _taken_over(fleet: Fleet, before: int) -> float:
    until = time.monotonic() + 150
    while await fleet.value("SELECT epoch FROM trigger WHERE status = 'running'") in (None, before):
        assert time.monotonic() < until, "nobody took over"
        await asyncio.sleep(0.01)
    return time.monotonic()


async def _until_both_hold_a_lease(fleet: Fleet) -> None:
    async def both() -> bool:
        rows = await fleet.fetch("SELECT pid FROM job WHERE job_type = 'triggerer' AND ended_at IS NULL")
        return {row["pid"] for row in rows} == {node.pid for node in fleet.of_kind("triggerer")}

    await eventually(both, 60, what="two triggerers with a lease")


def _all_but_one_stopped(recording: Recording) -> bool:
    return sum(each.until == float("inf") for each in recording.intervals(WATCHER)) == 1
