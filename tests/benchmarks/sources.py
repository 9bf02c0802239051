"""Where messages of a benchmark come from: each source starts its broker, says how pipelines name it, and sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
from aiokafka import AIOKafkaProducer

from tests.acceptance.deployment import Deployment
from tests.services.kafka import kafka_service
from tests.services.kafka_client import KafkaClient
from tests.services.moto import REGION, MotoServer, SqsAdministration

#: The asset that events are posted to.
ASSET = "bench"
PARTITIONS = 4
QUEUE = "bench"


class Sender(Protocol):
    """Sends one message and returns once the source has it."""

    async def __call__(self, body: Mapping[str, object]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A running source. ``watcher`` is the Python expression of its trigger in a pipeline file, if it has one;
    ``found`` is the expression that gives the message's body from an event."""

    title: str
    found: str
    watcher: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def sending(self, deployment: Deployment) -> AbstractAsyncContextManager[Sender]:
        """Connect and give a sender."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest(Source):
    """Events posted to the API, over one kept connection."""

    @asynccontextmanager
    async def sending(self, deployment: Deployment) -> AsyncIterator[Sender]:
        token = deployment.client.token()
        async with aiohttp.ClientSession(
            deployment.client.base, headers={"Authorization": f"Bearer {token}"}
        ) as session:

            async def send(body: Mapping[str, object]) -> None:
                async with session.post("/api/v2/assets/events", json={"name": ASSET, "extra": dict(body)}) as answer:
                    assert answer.status == 200, await answer.text()

            yield send


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka(Source):
    """Records sent to the partitions of a topic in turn."""

    bootstrap: str
    topic: str

    @asynccontextmanager
    async def sending(self, deployment: Deployment) -> AsyncIterator[Sender]:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=0)
        await producer.start()
        sent = 0

        async def send(body: Mapping[str, object]) -> None:
            nonlocal sent
            sent += 1
            await producer.send_and_wait(self.topic, json.dumps(body).encode(), partition=sent % PARTITIONS)

        try:
            yield send
        finally:
            await producer.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sqs(Source):
    """Messages of a standard queue."""

    endpoint: str
    queue: str

    @asynccontextmanager
    async def sending(self, deployment: Deployment) -> AsyncIterator[Sender]:
        async with SqsAdministration(self.endpoint) as administration:

            async def send(body: Mapping[str, object]) -> None:
                await administration.send(self.queue, [json.dumps(body)])

            yield send


@asynccontextmanager
async def rest() -> AsyncIterator[Source]:
    """The API itself."""
    yield Rest(title="REST", found="event.extra")


@asynccontextmanager
async def kafka() -> AsyncIterator[Source]:
    """A broker over TCP."""
    with kafka_service() as service:
        async with KafkaClient.connect(service.bootstrap) as client:
            topic = await client.create_topic("bench", partitions=PARTITIONS)
        yield Kafka(
            title=f"Kafka ({service.title})",
            found='event.extra["payload"]["value"]',
            watcher=f"MessageQueueTrigger(queue='kafka://{service.bootstrap}/{topic}')",
            bootstrap=service.bootstrap,
            topic=topic,
        )


@asynccontextmanager
async def sqs() -> AsyncIterator[Source]:
    """A moto server over HTTP."""
    with MotoServer() as server:
        async with SqsAdministration(server.url) as administration:
            queue = await administration.create_queue(QUEUE)
        yield Sqs(
            title="SQS (moto)",
            found='event.extra["payload"]["value"]',
            watcher=f"MessageQueueTrigger(queue='sqs://{QUEUE}', region_name={REGION!r})",
            environment={
                "AWS_ENDPOINT_URL": server.url,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": REGION,
            },
            endpoint=server.url,
            queue=queue,
        )


SOURCES = {"rest": rest, "kafka": kafka, "sqs": sqs}
