"""Kafka (a real broker over TCP) behind the contract suite."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from providers.kafka import KafkaTrigger
from tests.contracts.harness import Break
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.services.kafka_proxy import KafkaProxy
from tests.services.proxy import Mode
from watchers.triggers import BaseEventTrigger, TriggerEvent

_MODES = {Break.REFUSE: Mode.REFUSE, Break.RESET: Mode.RESET, Break.MUTE: Mode.MUTE}
CONNECTION = "contract_kafka"
PARTITIONS = 3


class KafkaHarness:
    """See :class:`tests.contracts.harness.SourceHarness`. A lane is a partition.

    What counts as acknowledged is what the group's committed offsets say, though they are but a copy: they follow the
    store and never precede it.
    """

    name: ClassVar[str] = "kafka"
    binary_bodies: ClassVar[bool] = True
    empty_bodies: ClassVar[bool] = True
    takes_one_for_a_task: ClassVar[bool] = True
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, broker: KafkaService) -> None:
        self._bootstrap = broker.bootstrap
        self._proxy = KafkaProxy(("127.0.0.1", broker.port))
        self._topic = f"contract-{uuid.uuid4().hex[:12]}"
        self._group = f"group-{self._topic}"
        self._sent: Counter[int] = Counter()
        self._lanes: dict[str, int] = {}
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self._client = await self._stack.enter_async_context(KafkaClient.connect(self._bootstrap))
        self._committed = await self._stack.enter_async_context(self._client.group_reader(self._group))
        await self._client.create_topic(self._topic, partitions=PARTITIONS)
        await self._stack.enter_async_context(self._proxy)
        address = f"127.0.0.1:{self._proxy.port}"
        os.environ[f"TIDEGATE_CONN_{CONNECTION.upper()}"] = f"kafka://key:hunter2@{address}"

    async def stop(self) -> None:
        await self._stack.aclose()
        del os.environ[f"TIDEGATE_CONN_{CONNECTION.upper()}"]

    async def send(self, bodies: Sequence[bytes], *, lanes: Sequence[str] | None = None) -> None:
        names = lanes or [""] * len(bodies)
        partitions = [self._lanes.setdefault(name, len(self._lanes) % PARTITIONS) for name in names]
        await self._client.send_to(self._topic, list(zip(partitions, bodies, strict=True)))
        self._sent.update(partitions)

    async def backlog(self) -> int:
        committed = await self._committed(self._topic, sorted(self._sent))
        return sum(count - (committed[partition] or 0) for partition, count in self._sent.items())

    def new_trigger(self, **options: Any) -> BaseEventTrigger:
        quick = {"request_timeout": 2.0, "metadata_refresh": 1.0, "group_id": self._group}
        more = {**quick, **self.options, **options}
        trigger = KafkaTrigger(topics=[self._topic], connection_id=CONNECTION, **more)
        return KafkaTrigger(**trigger.serialize()[1])

    async def break_connection(self, how: Break) -> None:
        await self._proxy.set_mode(_MODES[how])

    async def heal(self) -> None:
        await self._proxy.set_mode(Mode.PASS)

    async def redeliver(self) -> None:
        """Nothing to do: a new trigger goes on from the stored position."""

    def body(self, event: TriggerEvent) -> tuple[Any, str]:
        return event.payload["value"], event.payload["encoding"]


class KafkaGroupHarness(KafkaHarness):
    """The same with partitions shared by the group's protocol: committed offsets are the positions."""

    name: ClassVar[str] = "kafka-group"
    options: ClassVar[dict[str, Any]] = {"assignment": "group", "session_timeout": 6.0}
