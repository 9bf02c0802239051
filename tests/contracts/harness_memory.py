"""The memory broker behind the contract suite."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from providers.memory import MemoryTrigger
from providers.memory.client import MemoryClient
from tests.contracts.harness import Break
from tests.services.memory import MemoryBroker
from tests.services.proxy import Mode, Proxy
from watchers.triggers import BaseEventTrigger, TriggerEvent

_MODES = {Break.REFUSE: Mode.REFUSE, Break.RESET: Mode.RESET, Break.MUTE: Mode.MUTE}


class MemoryHarness:
    """See :class:`tests.contracts.harness.SourceHarness`."""

    name: ClassVar[str] = "memory"
    binary_bodies: ClassVar[bool] = True
    empty_bodies: ClassVar[bool] = True
    takes_one_for_a_task: ClassVar[bool] = True

    def __init__(self, broker: MemoryBroker) -> None:
        self._queue = f"contract-{uuid.uuid4().hex[:8]}"
        self._client = MemoryClient(broker.path)
        self._proxy = Proxy(broker.path, listen=broker.folder / f"{self._queue}.sock")

    async def start(self) -> None:
        await self._proxy.start()

    async def stop(self) -> None:
        await self._client.close()
        await self._proxy.stop()

    async def send(self, bodies: Sequence[bytes], *, lanes: Sequence[str] | None = None) -> None:
        await self._client.publish(self._queue, bodies, lanes=lanes or ())

    async def backlog(self) -> int:
        counts = await self._client.statistics(self._queue)
        return counts.visible + counts.in_flight

    def new_trigger(self, **options: Any) -> BaseEventTrigger:
        trigger = MemoryTrigger(self._queue, socket=str(self._proxy.address), **{"wait_seconds": 0.5, **options})
        return MemoryTrigger(**trigger.serialize()[1])

    async def break_connection(self, how: Break) -> None:
        await self._proxy.set_mode(_MODES[how])

    async def heal(self) -> None:
        await self._proxy.set_mode(Mode.PASS)

    async def redeliver(self) -> None:
        await self._client.return_all(self._queue)

    def body(self, event: TriggerEvent) -> tuple[Any, str]:
        return event.payload["value"], event.payload["encoding"]
