"""Brokers that are restarted, and networks that swallow everything, while messages flow: nothing is lost or doubled,
work goes on within seconds, other watchers do not notice, and the logs say little.

Short variants run in ``make test`` with bounds that a busy machine keeps; the others (``make chaos``) hold the promise.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.conftest import deploy, pipelines
from tests.acceptance.deployment import Deployment
from tests.services.fixtures_kafka import own_kafka_service, shared_kafka_service
from tests.services.fixtures_sqs import moto_server, sqs_administration
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.services.kafka_proxy import KafkaProxy
from tests.services.moto import REGION, SqsAdministration
from tests.services.proxy import HttpProxy, Mode

__all__ = ["deploy", "moto_server", "own_kafka_service", "pipelines", "shared_kafka_service", "sqs_administration"]

pytestmark = [pytest.mark.kafka, pytest.mark.sqs, pytest.mark.xdist_group("kafka")]

#: Lines that one watcher may add to all logs together in an outage of up to five minutes.
LINES_A_WATCHER = 60
#: The ticker's pause, and the longest gap between two of its events that no outage may cause, in seconds.
TICK, LONGEST_GAP = 0.5, 6.0
PIPELINE = """
import asyncio

from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger
from watchers import BaseEventTrigger, TriggerEvent


class Ticker(BaseEventTrigger):
    def serialize(self):
        return f"{{__name__}}.Ticker", {{}}

    async def run(self):
        number = 0
        while True:
            yield TriggerEvent(number)
            number += 1
            await asyncio.sleep({tick})


triggers = {{
    "kafka": MessageQueueTrigger(queue={kafka!r}, group_id={group!r}),
    "sqs": MessageQueueTrigger(queue={sqs!r}, region_name={region!r}, wait_time_seconds={wait}),
    "ticker": Ticker(),
}}
for name, trigger in triggers.items():
    with DAG(name, schedule=Asset(name, watchers=[AssetWatcher(name, trigger)])):
        pass
"""


@dataclass(kw_only=True)
class Flow:
    """Messages on their way: what was sent so far. ``send`` goes straight to the broker and may fail while it is away;
    then the same message is sent again, and the broker may have it twice: ``count`` says how many it has, if it can."""

    send: Callable[[str], Awaitable[None]]
    prefix: str
    #: Seconds between two messages. A deep queue makes the SQS server of the tests slow.
    pause: float
    count: Callable[[], Awaitable[int]] | None = None
    sent: list[str] = field(default_factory=list)
    is_over: bool = False

    async def run(self) -> None:
        while not self.is_over:
            message = f"{self.prefix}-{len(self.sent)}"
            try:
                await self.send(message)
            except Exception:
                await asyncio.sleep(0.2)
                continue
            self.sent.append(message)
            await asyncio.sleep(self.pause)


@dataclass(kw_only=True)
class Scene:
    """A deployment between two brokers, each behind a proxy, and load on both."""

    there: Deployment
    kafka: KafkaProxy
    sqs: HttpProxy
    flows: dict[str, Flow]
    url: str
    administration: SqsAdministration

    async def ask(self, work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Something that blocks, without holding up the proxies."""
        return await asyncio.to_thread(work, *arguments, **more)

    async def flowing(self, *names: str, after: float, within: float) -> dict[str, float]:
        """Seconds from ``after`` (Unix time) to the first event that each source stored since."""
        found: dict[str, float] = {}
        end = time.monotonic() + within
        while len(found) < len(names):
            assert time.monotonic() < end, f"only {found} of {names}\n{self.there.log_end()}"
            for name in set(names) - found.keys():
                page = await self.ask(self.newest, name)
                later = [moment for moment in page if moment > after]
                if later and len(later) < len(page):
                    found[name] = min(later) - after
                elif later:
                    moments = await self.ask(self.moments, name)
                    found[name] = min(moment for moment in moments if moment > after) - after
            await asyncio.sleep(0.1)
        return {name: round(found[name], 2) for name in names}

    def newest(self, name: str) -> list[float]:
        asset = self.there.client.asset_id(name)
        page = self.there.client.get("/api/v2/assets/events", asset_id=asset, limit=100, order_by="-id")
        return [_moment(event) for event in page["asset_events"]]

    def moments(self, name: str) -> list[float]:
        return sorted(_moment(event) for event in self.there.client.events(name))

    def events(self, name: str) -> int:
        asset = self.there.client.asset_id(name)
        return self.there.client.count("/api/v2/assets/events", asset_id=asset)

    def values(self, name: str) -> list[Any]:
        return [event["extra"]["payload"]["value"] for event in self.there.client.events(name)]

    def lines(self, name: str) -> int:
        """Lines that the watcher has in the logs of the processes and in its own."""
        trigger = self.there.client.triggers()[name]["id"]
        own = self.there.home / "logs" / "triggers" / f"{trigger}.log"
        count = len(own.read_text(errors="replace").splitlines()) if own.exists() else 0
        for line in self.there.log.read_text(errors="replace").splitlines():
            said = json.loads(line) if line.startswith("{") else {}
            text = str(said.get("event", ""))
            count += said.get("trigger_id") == trigger or f"trigger {trigger} " in text
        return count

    def recoveries(self, name: str) -> int:
        trigger = self.there.client.triggers()[name]["id"]
        own = self.there.home / "logs" / "triggers" / f"{trigger}.log"
        return own.read_text().count("the source answers again") if own.exists() else 0

    async def assert_nothing_lost(self) -> None:
        for name, flow in self.flows.items():
            count = len(flow.sent) if flow.count is None else await flow.count()
            await self.ask(
                self.there.wait_for,
                lambda name=name, count=count: self.events(name) >= count,
                f"{count} events of {name}",
                timeout=120,
            )
            values = await self.ask(self.values, name)
            assert set(values) == set(flow.sent), name
            assert len(values) == count, name
        await self.administration.wait_for_counts(self.url, total=0)

    async def assert_no_gap(self) -> None:
        gaps = [later - earlier for earlier, later in pairwise(await self.ask(self.moments, "ticker"))]
        assert max(gaps) < LONGEST_GAP, f"the ticker stood still for {max(gaps):.1f} s"


def _moment(event: Any) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


@asynccontextmanager
async def scene(
    start: Callable[..., Deployment], pipelines: Path, *, broker: KafkaService, sqs: SqsAdministration, wait: int
) -> AsyncIterator[Scene]:
    """Everything at work: a message of each source is an event already."""
    port = int(sqs.endpoint.rpartition(":")[2])
    async with (
        KafkaProxy(("127.0.0.1", broker.port)) as kafka_proxy,
        HttpProxy(("127.0.0.1", port)) as sqs_proxy,
        KafkaClient.connect(broker.bootstrap) as client,
    ):
        topic = await client.create_topic(partitions=2)
        url = await sqs.create_queue(f"faults-{uuid4().hex[:8]}")
        (pipelines / "faults.py").write_text(
            PIPELINE.format(
                kafka=f"kafka://127.0.0.1:{kafka_proxy.port}/{topic}",
                group=f"group-{topic}",
                sqs=f"sqs://{url.rpartition('/')[2]}",
                region=REGION,
                wait=wait,
                tick=TICK,
            )
        )
        environment = {
            "AWS_ENDPOINT_URL": sqs_proxy.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "TIDEGATE_PARALLELISM": "2",
        }
        there = await asyncio.to_thread(start, pipelines, **environment)

        async def ends() -> int:
            return sum((await client.end_offsets(topic)).values())

        flows = {
            "kafka": Flow(
                send=lambda message: client.send(topic, [message.encode()]), prefix="k", pause=0.1, count=ends
            ),
            "sqs": Flow(send=lambda message: _sent(sqs, url, message), prefix="s", pause=1.5),
        }
        found = Scene(there=there, kafka=kafka_proxy, sqs=sqs_proxy, flows=flows, url=url, administration=sqs)
        await found.ask(there.wait_for_dags, ["kafka", "sqs", "ticker"])
        async with asyncio.TaskGroup() as group:
            for flow in flows.values():
                group.create_task(flow.run())
            await found.flowing("kafka", "sqs", "ticker", after=0, within=90)
            yield found
            for flow in flows.values():
                flow.is_over = True
        await found.assert_nothing_lost()
        await found.assert_no_gap()
        await asyncio.to_thread(there.stop)
        await sqs.delete_queue(url)


async def _sent(sqs: SqsAdministration, url: str, message: str) -> None:
    await sqs.send(url, [message])


@pytest.mark.parametrize(
    ("seconds", "wait", "bound"),
    [
        pytest.param(8, 1, 30.0, marks=pytest.mark.timeout(300), id="short"),
        pytest.param(60, 20, 5.0, marks=[pytest.mark.chaos, pytest.mark.timeout(500)], id="one minute"),
        pytest.param(300, 20, 5.0, marks=[pytest.mark.chaos, pytest.mark.timeout(900)], id="five minutes"),
    ],
)
async def test_a_network_that_swallows_everything(
    deploy: Callable[..., Deployment],
    pipelines: Path,
    kafka_service: KafkaService,
    sqs_administration: SqsAdministration,
    seconds: int,
    wait: int,
    bound: float,
) -> None:
    """Connections are accepted and stay mute. Afterwards only new ones work; those of the outage are mute for ever."""
    async with scene(deploy, pipelines, broker=kafka_service, sqs=sqs_administration, wait=wait) as found:
        before = {name: await found.ask(found.lines, name) for name in found.flows}
        await found.kafka.set_mode(Mode.MUTE)
        await found.sqs.set_mode(Mode.MUTE)
        await asyncio.sleep(seconds)
        await found.kafka.end_black_hole()
        await found.sqs.end_black_hole()
        back = await found.flowing("kafka", "sqs", after=time.time(), within=max(bound, 30.0))
        await asyncio.sleep(2)
        lines = {name: await found.ask(found.lines, name) - before[name] for name in found.flows}
        print(f"\nmute for {seconds} s: first new event after {back} s; lines {lines}")
        assert max(back.values()) <= bound, back
        assert max(lines.values()) <= LINES_A_WATCHER, lines
        if seconds >= 60:
            assert {name: await found.ask(found.recoveries, name) for name in found.flows} == {"kafka": 1, "sqs": 1}


@pytest.mark.parametrize(
    ("rounds", "bound"),
    [
        pytest.param(1, 30.0, marks=pytest.mark.timeout(300), id="short"),
        pytest.param(5, 5.0, marks=[pytest.mark.chaos, pytest.mark.timeout(600)], id="five times"),
    ],
)
async def test_brokers_are_restarted_under_load(
    deploy: Callable[..., Deployment],
    pipelines: Path,
    own_kafka_service: KafkaService,
    sqs_administration: SqsAdministration,
    rounds: int,
    bound: float,
) -> None:
    """Kafka, which keeps its data, is stopped or killed and started again; the connection to SQS is cut meanwhile."""
    if not own_kafka_service.keeps_data:
        pytest.skip(f"{own_kafka_service.title} keeps nothing over a restart")
    async with scene(deploy, pipelines, broker=own_kafka_service, sqs=sqs_administration, wait=20) as found:
        for number in range(rounds):
            await found.sqs.set_mode(Mode.RESET if number % 2 else Mode.REFUSE)
            await asyncio.to_thread(own_kafka_service.kill if number % 2 else own_kafka_service.stop)
            await asyncio.to_thread(own_kafka_service.start)
            kafka = time.time()
            await found.sqs.set_mode(Mode.PASS)
            sqs = time.time()
            back = await found.flowing("sqs", after=sqs, within=max(bound, 30.0))
            back |= await found.flowing("kafka", after=kafka, within=max(bound, 30.0))
            print(f"\nround {number}: first new event after {back} s")
            assert max(back.values()) <= bound, back
