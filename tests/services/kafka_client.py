"""What tests do at a Kafka broker: topics, messages, offsets. Works with each broker of ``tests.services.kafka``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError

READY_SECONDS = 30.0

#: Called with a topic and partitions; answers with their committed offsets, ``None`` for none.
GroupReader: TypeAlias = Callable[[str, Sequence[int]], Awaitable[dict[int, int | None]]]


def topic_name(prefix: str = "topic") -> str:
    """A topic name that no other test uses."""
    return f"{prefix}-{uuid4().hex[:12]}"


class KafkaClient:
    """An admin client and a producer of one cluster."""

    def __init__(self, bootstrap: str, *, admin: Any, producer: Any) -> None:
        self.bootstrap = bootstrap
        self._admin = admin
        self.producer = producer

    @classmethod
    @asynccontextmanager
    async def connect(cls, bootstrap: str) -> AsyncIterator[KafkaClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=2)
        try:
            await admin.start()
            await producer.start()
            yield cls(bootstrap, admin=admin, producer=producer)
        finally:
            await producer.stop()
            await admin.close()

    async def create_topic(self, name: str | None = None, *, partitions: int = 1, **config: str) -> str:
        """Create a topic and wait until all of its partitions have leaders."""
        name = name or topic_name()
        topic = NewTopic(name, partitions, 1, topic_configs={k.replace("_", "."): v for k, v in config.items()})
        async with asyncio.timeout(READY_SECONDS):
            while not await self._is_created(topic):
                await asyncio.sleep(0.1)
        await self.until_partitions(name, partitions)
        return name

    async def _is_created(self, topic: NewTopic) -> bool:
        try:
            answer = await self._admin.create_topics([topic])
        except (AttributeError, KafkaError):
            # A broker that got no processor for long is out of its own cluster for a moment: then there is neither a
            # controller (the client does not expect that) nor a node.
            return False
        return all(code in (0, 36) for _, code, *_ in answer.topic_errors)

    async def add_partitions(self, topic: str, total: int) -> None:
        await self._admin.create_partitions({topic: NewPartitions(total)})
        await self.until_partitions(topic, total)
        await self.producer.client.force_metadata_update()

    async def delete_topic(self, topic: str) -> None:
        """Delete and wait until the cluster has forgotten it."""
        await self._admin.delete_topics([topic])
        async with asyncio.timeout(READY_SECONDS):
            while (await self._describe(topic))["error_code"] == 0:
                await asyncio.sleep(0.05)

    async def delete_records(self, topic: str, before: dict[int, int]) -> None:
        """Delete the messages before these offsets, as retention would."""
        await self._admin.delete_records(
            {TopicPartition(topic, partition): RecordsToDelete(offset) for partition, offset in before.items()}
        )

    async def until_partitions(self, topic: str, count: int) -> None:
        async with asyncio.timeout(READY_SECONDS):
            while True:
                found = await self._describe(topic)
                if sum(entry["leader"] >= 0 for entry in found["partitions"]) >= count:
                    return
                await asyncio.sleep(0.05)

    async def _describe(self, topic: str) -> dict[str, Any]:
        (found,) = await self._admin.describe_topics([topic])
        return dict(found)

    async def send(self, topic: str, values: Iterable[bytes | None], *, partitions: int = 1) -> None:
        """Send to the partitions in turn; returns when all are acknowledged. ``None`` deletes the key ``k``."""
        await self.send_to(topic, ((number % partitions, value) for number, value in enumerate(values)))

    async def send_to(self, topic: str, messages: Iterable[tuple[int, bytes | None]]) -> None:
        """Send (partition, value) pairs in order; returns when all are acknowledged."""
        pending = []
        for partition, value in messages:
            key = b"k" if value is None else None
            pending.append(await self.producer.send(topic, value, key=key, partition=partition))
        await asyncio.gather(*pending)

    @asynccontextmanager
    async def group_reader(self, group: str) -> AsyncIterator[GroupReader]:
        """A function that reads a group's committed offsets over a connection that stays."""
        async with self._consumer(group) as consumer:

            async def read(topic: str, partitions: Sequence[int]) -> dict[int, int | None]:
                return {number: await consumer.committed(TopicPartition(topic, number)) for number in partitions}

            yield read

    async def end_offsets(self, topic: str) -> dict[int, int]:
        return await self._offsets(topic, group=None)

    async def committed(self, topic: str, *, group: str) -> dict[int, int | None]:
        """The group's committed offsets; ``None`` for none."""
        return await self._offsets(topic, group=group)

    async def commit(self, topic: str, offsets: dict[int, int], *, group: str) -> None:
        """Overwrite the group's committed offsets."""
        async with self._consumer(group) as consumer:
            positions = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
            consumer.assign(list(positions))
            consumer.pause(*positions)
            await consumer.commit(positions)

    async def _offsets(self, topic: str, *, group: str | None) -> dict[int, Any]:
        numbers: Sequence[int] = sorted(entry["partition"] for entry in (await self._describe(topic))["partitions"])
        partitions = [TopicPartition(topic, number) for number in numbers]
        async with self._consumer(group) as consumer:
            if group is None:
                ends = await consumer.end_offsets(partitions)
                return {partition.partition: ends[partition] for partition in partitions}
            return {partition.partition: await consumer.committed(partition) for partition in partitions}

    @asynccontextmanager
    async def _consumer(self, group: str | None) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            yield consumer
        finally:
            await consumer.stop()


__all__ = ["KafkaClient", "topic_name"]
