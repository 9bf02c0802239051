"""Point 5, the database: it is restarted under load, in order and by surprise. Nothing is lost, nobody has to help."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from tests.chaos import figures
from tests.chaos.fleet import Fleet
from tests.chaos.flow import Flow, end_all
from tests.chaos.ledger import Ledger
from tests.chaos.outages import FAST, IMMEDIATE, Said, end, migrated_server
from tests.chaos.recorded import Recording
from tests.chaos.sources import FileSource

#: From the answer of the server to a new message of each watcher, in seconds: an aim.
BACK = 5.0
#: Most lines of a process and of a watcher's log in one outage.
MOST_LINES = 60

Outage = tuple[signal.Signals, float]
SHORT: tuple[Outage, ...] = ((IMMEDIATE, 1.0),)
#: Some shorter than a lease (6 s), some longer.
LONG: tuple[Outage, ...] = (
    (FAST, 0.0),
    (IMMEDIATE, 0.0),
    (FAST, 3.0),
    (IMMEDIATE, 3.0),
    (FAST, 9.0),
    (IMMEDIATE, 60.0),
)


@pytest.mark.parametrize(
    "outages",
    [
        pytest.param(SHORT, id="short", marks=pytest.mark.timeout(240)),
        pytest.param(LONG, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
    ],
)
async def test_the_database_is_restarted(
    tmp_path: Path, chance: Random, seed: int, outages: tuple[Outage, ...]
) -> None:
    recording = Recording(tmp_path / "recorded", count=3)
    async with (
        migrated_server() as server,
        Fleet(tmp_path, server.dsn, seed=seed) as fleet,
        Ledger.open(fleet) as ledger,
        AsyncExitStack() as stack,
    ):
        dag_ids = recording.write_pipeline(fleet.pipelines)
        await fleet.start(dag_processor=1, scheduler=2, triggerer=2)
        await fleet.until_dags(dag_ids)
        flows = [
            await stack.enter_async_context(Flow.open(source, ledger, Random(chance.random()), gap=0.1))
            for source in recording.sources.values()
        ]
        pids = {node.name: node.pid for node in fleet.nodes.values()}
        for number, seconds in outages:
            await _until_all_flow(flows)
            said = Said(fleet)
            fleet.note(f"the database ends by {number.name} for {seconds:g} s")
            await end(server, number)
            gone_at = time.monotonic()
            await asyncio.sleep(seconds)
            await server.restart()
            back_at = time.monotonic()
            fleet.note("the database answers")
            name = f"{number.name}, {seconds:g} s away"
            new = [await ledger.first_stored(flow.source.kind, sent_after=back_at) - back_at for flow in flows]
            waited = [
                await ledger.until_stored(*key) - back_at
                for key, sent in list(ledger.sent.items())
                if gone_at <= sent <= back_at
            ]
            figures.record(
                "5 database restarted", f"{name}, to a new message of each watcher", figures.spread(new, max=BACK)
            )
            figures.record("5 database restarted", f"{name}, to what waited", figures.spread(waited))
            await _assert_nobody_raves(fleet, said, name)
        await end_all(flows, ledger, dag_ids)
        assert {node.name: node.pid for node in fleet.nodes.values() if node.is_running} == pids
    recording.assert_never_twice()
    assert recording.kills == 0


async def _until_all_flow(flows: list[Flow]) -> None:
    for flow in flows:
        assert isinstance(flow.source, FileSource)
        await flow.ledger.until_stored(flow.source.kind, await flow.send_one())


async def _assert_nobody_raves(fleet: Fleet, said: Said, outage: str) -> None:
    """Few lines, and each trouble is told to be over once."""
    await asyncio.sleep(1.5)  # whatever is told afterwards belongs to it as well
    most = max(len(said.lines(name)) for name in fleet.nodes)
    most_of_a_watcher = max(said.lines_of_watchers().values(), default=0)
    figures.record(
        "5 database restarted", f"{outage}, lines of a process, of a watcher", f"≤ {most}, ≤ {most_of_a_watcher}"
    )
    assert most <= MOST_LINES, {name: said.actions(name) for name in fleet.nodes}
    assert most_of_a_watcher <= MOST_LINES
    for node in fleet.of_kind("triggerer"):
        actions = said.actions(node.name)
        # An outage that outlasts the lease ends with a new one.
        told = actions["store_recovered"] + actions["lease_taken"]
        assert told == min(actions["store_waits"] + actions["lease_lost"], 1), (node.name, actions)
