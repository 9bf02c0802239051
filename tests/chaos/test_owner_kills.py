"""Point 2: the owner of a watcher is killed again and again; nothing is lost, nothing doubled, nobody waits long."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from tests.acceptance.test_queues import sqs_environment
from tests.chaos import figures
from tests.chaos.conftest import MakeFleet
from tests.chaos.deaths import Killer, Times, plan_kills, until_acknowledged
from tests.chaos.flow import Flow
from tests.chaos.ledger import Ledger
from tests.chaos.sources import FileSource, KafkaSource, Source, SqsSource, write_pipeline
from tests.services.kafka_client import KafkaClient
from tests.services.moto import SqsAdministration

pytestmark = [pytest.mark.sqs, pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

KINDS = ("sqs", "kafka", "file")
#: Of the long part, for each source.
KILLS = int(os.environ.get("TIDEGATE_TEST_KILLS", "50"))


@pytest_asyncio.fixture
async def sources(
    tmp_path: Path, sqs_administration: SqsAdministration, kafka_client: KafkaClient
) -> AsyncIterator[list[Source]]:
    """One of each kind."""
    yield [
        await SqsSource.create(sqs_administration),
        await KafkaSource.create(kafka_client),
        FileSource(tmp_path / "files"),
    ]


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, id="short", marks=pytest.mark.timeout(300)),
        pytest.param(KILLS, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(1800)]),
    ],
)
async def test_owners_are_killed(
    make_fleet: MakeFleet, sources: list[Source], sqs_administration: SqsAdministration, chance: Random, kills: int
) -> None:
    times = {kind: Times() for kind in KINDS}
    async with make_fleet(**sqs_environment(sqs_administration)) as fleet, AsyncExitStack() as stack:
        dag_ids = {source.kind: write_pipeline(fleet.pipelines, source) for source in sources}
        await fleet.start(dag_processor=1, scheduler=1, triggerer=3)
        await fleet.until_dags(dag_id for found in dag_ids.values() for dag_id in found)
        ledger = await stack.enter_async_context(Ledger.open(fleet))
        flows = {}
        for source in sources:
            gaps = Random(chance.random())
            flows[source.kind] = await stack.enter_async_context(Flow.open(source, ledger, gaps, gap=0.15))
        for flow in flows.values():
            await ledger.until_stored(flow.source.kind, await flow.send_one())
        killer = Killer(fleet, chance)
        for kind, point in plan_kills(chance, KINDS, count=kills):
            for other in flows.values():
                # At a named point it is this source's message that passes it.
                if point is not None and other.source.kind != kind:
                    other.pause()
            death = await killer.kill(flows[kind], point)
            await killer.measure(flows[kind], death, times[kind])
            for other in flows.values():
                other.resume()
            await killer.revive(death)
        for flow in flows.values():
            flow.pause()
        await ledger.until_all_stored()
        killer.count_in_flight(ledger)
        for kind, flow in flows.items():
            await until_acknowledged(flow)
            await ledger.assert_each_event_once(kind)
            await ledger.assert_each_run_once(kind, *dag_ids[kind])
    for kind, found in times.items():
        new, in_flight = figures.spread(found.new, p50=1.0, p99=3.0), figures.spread(found.in_flight)
        figures.record("2 owner killed", f"{kind}, kill to the next owner", figures.spread(found.owned))
        figures.record("2 owner killed", f"{kind}, kill to the next new message", new)
        figures.record("2 owner killed", f"{kind}, messages in flight at the kill", in_flight)
