"""Partitions shared by the group's protocol: ``assignment="group"``."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from tests.contracts.ledger import Driver, Ledger, driving, eventually
from tests.providers.kafka.support import by_partition, numbered, trigger, until_committed, values
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.services.kafka_proxy import KafkaProxy
from tests.services.proxy import Mode

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(180)]

SHARED = {"assignment": "group", "session_timeout": 6.0}


async def reads(driver: Driver) -> frozenset[int]:
    """The partitions that a trigger has been given."""
    session = driver.trigger._session  # type: ignore[attr-defined]
    return frozenset() if session is None else frozenset(partition.partition for partition in session._assigned)


async def until_split(first: Driver, second: Driver, *, partitions: int) -> None:
    async def split() -> bool:
        one, two = await reads(first), await reads(second)
        return bool(one) and bool(two) and one | two == set(range(partitions)) and not one & two

    await eventually(split)


async def test_members_share_the_partitions_and_a_clean_stop_hands_them_over_at_once(
    kafka_client: KafkaClient,
) -> None:
    topic = await kafka_client.create_topic(partitions=4)
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic, **SHARED), ledger) as first:
        await kafka_client.send(topic, numbered(40), partitions=4)
        await ledger.wait_for_events(40)
        async with driving(trigger(kafka_client, topic, **SHARED), ledger) as second:
            await until_split(first, second, partitions=4)
            await kafka_client.send(topic, numbered(40, first=40), partitions=4)
            await ledger.wait_for_events(80)
        await kafka_client.send(topic, numbered(40, first=80), partitions=4)
        await ledger.wait_for_events(120)
        await until_committed(kafka_client, topic, dict.fromkeys(range(4), 30))
    assert Counter(values(ledger)) == Counter(range(120))
    assert all(offsets == sorted(offsets) for offsets in by_partition(ledger).values())
    assert ledger.positions == {}


async def test_a_member_that_falls_silent_costs_its_session_and_nothing_else(
    kafka_service: KafkaService, kafka_client: KafkaClient
) -> None:
    """What it had stored without committing, and what it had in hand, comes again and is recognised."""
    topic = await kafka_client.create_topic(partitions=2)
    ledger = Ledger()
    async with KafkaProxy(("127.0.0.1", kafka_service.port)) as proxy:
        cut_off = KafkaClient(f"127.0.0.1:{proxy.port}", admin=None, producer=None)
        async with (
            driving(trigger(cut_off, topic, **SHARED), ledger) as first,
            driving(trigger(kafka_client, topic, **SHARED), ledger) as second,
        ):
            await until_split(first, second, partitions=2)
            await proxy.set_mode(Mode.MUTE)
            began = time.monotonic()
            await kafka_client.send(topic, numbered(40), partitions=2)
            await ledger.wait_for_events(40)
            took = time.monotonic() - began
            await until_committed(kafka_client, topic, {0: 20, 1: 20})
            await proxy.set_mode(Mode.PASS)
            await until_split(first, second, partitions=2)
            await kafka_client.send(topic, numbered(20, first=40), partitions=2)
            await ledger.wait_for_events(60)
    print(f"\npartitions of a silent member are read after {took:.1f} s (session time-out 6 s)")
    assert took > 2
    assert Counter(values(ledger)) == Counter(range(60))


async def test_an_offset_is_committed_only_after_what_it_stands_for_is_stored(kafka_client: KafkaClient) -> None:
    """A later good message never carries the group past an earlier one that is not resolved."""
    topic = await kafka_client.create_topic()
    ledger = Ledger()
    options = {**SHARED, "batch_size": 1}
    async with driving(trigger(kafka_client, topic, **options), ledger):
        await kafka_client.send(topic, numbered(2))
        await ledger.wait_for_events(2)
        await until_committed(kafka_client, topic, {0: 2})
        ledger.close_gate()
        await kafka_client.send(topic, numbered(4, first=2))
        await ledger.wait_for_offer(3)
        await asyncio.sleep(1)
        assert await kafka_client.committed(topic, group=f"group-{topic}") == {0: 2}
    ledger.open_gate()
    async with driving(trigger(kafka_client, topic, **options), ledger):
        await ledger.wait_for_events(6)
        await until_committed(kafka_client, topic, {0: 6})
    assert values(ledger) == list(range(6))
    assert ledger.duplicates == []


@pytest.mark.parametrize(("reset", "expected"), [("latest", [4, 5, 6]), ("earliest", [0, 1, 2, 3, 4, 5, 6])])
async def test_a_first_start_notes_where_it_begins(kafka_client: KafkaClient, reset: str, expected: list[int]) -> None:
    """Stopped before its first message, it reads what was sent meanwhile, and partitions that are new from their
    start."""
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(4))
    ledger = Ledger()
    options = {**SHARED, "auto_offset_reset": reset}
    if reset == "earliest":
        ledger.close_gate()
    async with driving(trigger(kafka_client, topic, **options), ledger) as driver:
        await eventually(lambda: reads(driver))
        await until_committed(kafka_client, topic, {0: 4 if reset == "latest" else 0})
    ledger.open_gate()
    await kafka_client.add_partitions(topic, 2)
    await kafka_client.send_to(topic, [(0, b"4"), (1, b"5"), (0, b"6")])
    async with driving(trigger(kafka_client, topic, **options), ledger):
        await ledger.wait_for_events(len(expected))
        await until_committed(kafka_client, topic, {0: 6, 1: 1})
    assert sorted(values(ledger)) == expected


async def test_a_topic_that_comes_later_is_read(kafka_client: KafkaClient) -> None:
    topic = f"later-{time.monotonic_ns()}"
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic, **SHARED), ledger) as driver:
        await eventually(lambda: driver.status.consecutive >= 1)
        await kafka_client.create_topic(topic)
        await kafka_client.send(topic, numbered(3))
        await ledger.wait_for_events(3)
        await eventually(lambda: driver.status.consecutive == 0)
    assert values(ledger) == [0, 1, 2]
