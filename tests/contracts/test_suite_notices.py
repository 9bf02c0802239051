"""The suite must be able to fail: triggers that break the contract are caught by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from providers.memory import MemoryTrigger
from providers.memory.client import MemoryClient, socket_path
from tests.contracts import test_message_sources as suite
from tests.contracts.harness_memory import MemoryHarness
from tests.contracts.ledger import Ledger
from tests.services.memory import MemoryBroker
from watchers.triggers import BaseEventTrigger, TriggerEvent, Yielded


class Wrong(MemoryTrigger):
    """Reads as ``MemoryTrigger`` does, up to the one thing that a subclass gets wrong."""

    async def run(self) -> AsyncIterator[Yielded]:
        async with MemoryClient(socket_path(self.socket)) as client:
            while True:
                received = await client.receive(self.queue_name, 10, wait=1, visibility=600)
                async for batch in self.offer(client, [self._event(message) for message in received]):
                    yield batch

    def offer(self, client: MemoryClient, events: list[TriggerEvent]) -> AsyncIterator[list[TriggerEvent]]:
        raise NotImplementedError

    async def acknowledge(self, client: MemoryClient, events: list[TriggerEvent]) -> None:
        await client.acknowledge(self.queue_name, [str(event.key) for event in events])


class AcknowledgesFirst(Wrong):
    async def offer(self, client: MemoryClient, events: list[TriggerEvent]) -> AsyncIterator[list[TriggerEvent]]:
        await self.acknowledge(client, events)
        yield events


class OnlyTheFirst(Wrong):
    async def offer(self, client: MemoryClient, events: list[TriggerEvent]) -> AsyncIterator[list[TriggerEvent]]:
        if events:
            yield events[-1:]
        await self.acknowledge(client, events)


class NewIdentities(Wrong):
    async def offer(self, client: MemoryClient, events: list[TriggerEvent]) -> AsyncIterator[list[TriggerEvent]]:
        yield [TriggerEvent(e.payload, key=f"{e.key}-{id(self)}", source=e.source, raw=e.raw) for e in events]
        await self.acknowledge(client, events)


class Reverses(Wrong):
    async def offer(self, client: MemoryClient, events: list[TriggerEvent]) -> AsyncIterator[list[TriggerEvent]]:
        yield events[::-1]
        await self.acknowledge(client, events)


class DropsFalsy(Wrong):
    async def offer(self, client: MemoryClient, events: list[TriggerEvent]) -> AsyncIterator[list[TriggerEvent]]:
        yield [event for event in events if event.payload["value"]]
        await self.acknowledge(client, events)


class WrongHarness(MemoryHarness):
    """The memory broker with a trigger of a given class."""

    def __init__(self, broker: MemoryBroker, trigger_class: type[MemoryTrigger]) -> None:
        super().__init__(broker)
        self.trigger_class = trigger_class

    def new_trigger(self, **options: Any) -> BaseEventTrigger:
        arguments = super().new_trigger(**options).serialize()[1]
        return self.trigger_class(**arguments)


CAUGHT = [
    (AcknowledgesFirst, suite.test_nothing_is_acknowledged_before_the_commit),
    (AcknowledgesFirst, suite.test_stopped_before_the_commit_gives_a_redelivery_with_the_same_identity),
    (OnlyTheFirst, suite.test_ten_at_once_are_ten_events),
    (NewIdentities, suite.test_stopped_before_the_commit_gives_a_redelivery_with_the_same_identity),
    (NewIdentities, suite.test_crashed_between_commit_and_acknowledgement_gives_no_second_event),
    (Reverses, suite.test_order_is_kept_within_a_lane),
    (DropsFalsy, suite.test_bodies_are_decoded_without_loss),
    (Wrong, suite.test_each_message_is_one_event_with_an_identity),
]


@pytest.mark.parametrize(("trigger_class", "test"), CAUGHT, ids=lambda found: found.__name__)
async def test_a_wrong_trigger_is_caught(
    memory_broker: MemoryBroker,
    nothing_leaks: None,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    trigger_class: type[MemoryTrigger],
    test: Any,
) -> None:
    monkeypatch.setattr("tests.contracts.ledger.PATIENCE", 1.5)
    harness = WrongHarness(memory_broker, trigger_class)
    await harness.start()
    try:
        with pytest.raises((AssertionError, TimeoutError)):
            await test(harness, ledger)
    finally:
        await harness.stop()
