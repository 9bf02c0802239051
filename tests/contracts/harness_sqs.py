"""SQS (a moto server over HTTP) behind the contract suite."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from providers.sqs.trigger import SqsTrigger
from tests.contracts.harness import Break
from tests.services.moto import REGION, MotoServer, SqsAdministration
from tests.services.proxy import HttpProxy, Mode
from watchers.triggers import BaseEventTrigger, TriggerEvent

_MODES = {Break.REFUSE: Mode.REFUSE, Break.RESET: Mode.RESET, Break.MUTE: Mode.MUTE}
CONNECTION = "contract_sqs"


class SqsHarness:
    """See :class:`tests.contracts.harness.SourceHarness`. The queue is FIFO: only there order is promised."""

    name: ClassVar[str] = "sqs"
    binary_bodies: ClassVar[bool] = False
    empty_bodies: ClassVar[bool] = False
    takes_one_for_a_task: ClassVar[bool] = True

    def __init__(self, server: MotoServer, *, keeps_order: bool = True) -> None:
        self.proxy = HttpProxy(("127.0.0.1", server.port))
        self.administration = SqsAdministration(server.url)
        self.queue_name = f"contract-{uuid.uuid4().hex[:12]}" + ".fifo" * keeps_order
        self.url = ""

    async def start(self) -> None:
        os.environ[f"TIDEGATE_CONN_{CONNECTION.upper()}"] = "aws://key:hunter2@"
        await self.administration.__aenter__()
        await self.proxy.start()
        self.url = await self.administration.create_queue(self.queue_name, visibility=4)

    async def stop(self) -> None:
        await self.proxy.stop()
        await self.administration.delete_queue(self.url)
        await self.administration.__aexit__(None, None, None)
        del os.environ[f"TIDEGATE_CONN_{CONNECTION.upper()}"]

    async def send(self, bodies: Sequence[bytes], *, lanes: Sequence[str] | None = None) -> None:
        await self.administration.send(self.url, [body.decode() for body in bodies], lanes=lanes)

    async def backlog(self) -> int:
        return (await self.administration.counts(self.url)).total

    def new_trigger(self, **options: Any) -> BaseEventTrigger:
        quick = {"visibility_timeout": 4, "wait_time_seconds": 1, "connection_id": CONNECTION, "region_name": REGION}
        # moto hands one message group to two simultaneous receives, and a group whose time ran out in any order; the
        # service does neither.
        quick["receivers"] = 1 if self.queue_name.endswith(".fifo") else 2
        trigger = SqsTrigger(self.queue_name, endpoint_url=self.proxy.url, **{**quick, **options})
        return SqsTrigger(**trigger.serialize()[1])

    async def break_connection(self, how: Break) -> None:
        await self.proxy.set_mode(_MODES[how])

    async def heal(self) -> None:
        await self.proxy.set_mode(Mode.PASS)

    async def redeliver(self) -> None:
        """Nothing to do: a stopped trigger gives back what it has, and the visibility time is short."""

    def body(self, event: TriggerEvent) -> tuple[Any, str]:
        return event.payload["value"], event.payload["encoding"]
