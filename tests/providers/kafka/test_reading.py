"""Reading as such: transactions, compression, large messages, the copy of the offsets, leaks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import stat
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from providers.kafka.cluster import Cluster
from providers.kafka.offset_copy import OffsetCopy
from providers.kafka.topics import Log
from tests.contracts.ledger import Ledger, driving, eventually
from tests.providers.kafka.support import lanes, numbered, trigger, until_committed, values
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(120)]


async def test_only_committed_transactions_count(kafka_client: KafkaClient, kafka_service: KafkaService) -> None:
    if not kafka_service.transactions:
        pytest.skip(f"{kafka_service.title} has no transactions")
    topic = await kafka_client.create_topic()
    producer = AIOKafkaProducer(bootstrap_servers=kafka_service.bootstrap, transactional_id=f"tx-{topic}")
    await producer.start()
    ledger = Ledger()
    try:
        async with driving(trigger(kafka_client, topic), ledger):
            for first, kept in ((0, True), (10, False), (20, True)):
                await producer.begin_transaction()
                for value in numbered(3, first=first):
                    await producer.send_and_wait(topic, value, partition=0)
                await (producer.commit_transaction() if kept else producer.abort_transaction())
            await ledger.wait_for_events(6)
            # Nine messages and three markers: nothing is left behind for a lag tool to show.
            await until_committed(kafka_client, topic, {0: 12})
            await ledger.wait_until(lambda: lanes(ledger)["0"] == 12)
    finally:
        await producer.stop()
    assert values(ledger) == [0, 1, 2, 20, 21, 22]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches(kafka_client: KafkaClient, kafka_service: KafkaService, compression: str) -> None:
    topic = await kafka_client.create_topic()
    ledger = Ledger()
    options = {"compression_type": compression, "linger_ms": 20}
    producer = AIOKafkaProducer(bootstrap_servers=kafka_service.bootstrap, **options)
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(topic, value) for value in numbered(50)])
    finally:
        await producer.stop()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(50)
    assert values(ledger) == list(range(50))


async def test_a_message_over_the_payload_limit_is_yielded_and_the_next_ones_too(
    kafka_client: KafkaClient, kafka_service: KafkaService
) -> None:
    topic = await kafka_client.create_topic(max_message_bytes="8000000")
    large = b'"' + b"x" * 5_000_000 + b'"'
    producer = AIOKafkaProducer(bootstrap_servers=kafka_service.bootstrap, max_request_size=8_000_000)
    await producer.start()
    try:
        for value in (b"1", large, b"2", large, b"3"):
            await producer.send_and_wait(topic, value, partition=0)
    finally:
        await producer.stop()
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(5)
    assert [event.raw for event in ledger.events] == [b"1", large, b"2", large, b"3"]
    assert max(sum(len(event.raw or b"") for event in batch) for batch in ledger.batches) < 10_000_000


async def test_a_copy_that_fails_is_a_warning_and_stops_nothing(
    kafka_client: KafkaClient, kafka_service: KafkaService, caplog: pytest.LogCaptureFixture
) -> None:
    if kafka_service.kind == "tansu":
        pytest.skip("it takes commits for a group that has live members")
    topic = await kafka_client.create_topic()
    ledger = Ledger()
    # A live member makes the broker refuse the commits of strangers.
    member = AIOKafkaConsumer(topic, bootstrap_servers=kafka_service.bootstrap, group_id=f"group-{topic}")
    await member.start()
    try:
        caplog.set_level(logging.WARNING, logger="tidegate.trigger")
        async with driving(trigger(kafka_client, topic), ledger) as driver:
            for number in range(5):
                await kafka_client.send(topic, numbered(1, first=number))
                await ledger.wait_for_events(number + 1)
            await eventually(lambda: "kafka.commit" in caplog.text)
            assert driver.status.errors == []
    finally:
        await member.stop()
    assert values(ledger) == list(range(5))
    assert caplog.text.count("kafka.commit") == 1


async def test_the_group_is_named_after_deployment_and_source(
    kafka_client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_DEPLOYMENT", "blue")
    topic = await kafka_client.create_topic()
    groups: list[str] = []

    class Noted(OffsetCopy):
        def __init__(self, cluster: Cluster, *, group_id: str, log: Log) -> None:
            groups.append(group_id)
            super().__init__(cluster, group_id=group_id, log=log)

    monkeypatch.setattr("providers.kafka.session.OffsetCopy", Noted)
    for batch_size in (10, 20):
        async with driving(trigger(kafka_client, topic, group_id=None, batch_size=batch_size), Ledger()) as driver:
            # The group is named before the first position is stored.
            await eventually(functools.partial(_has_positions, driver.ledger))
    assert groups[0] == groups[1]
    assert groups[0].startswith("tidegate.blue.")


def _has_positions(ledger: Ledger) -> bool:
    return bool(ledger.positions)


async def test_a_slow_store_holds_the_reading_back(kafka_client: KafkaClient) -> None:
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(100))
    ledger = Ledger()
    ledger.close_gate()
    async with driving(trigger(kafka_client, topic, batch_size=10), ledger):
        await ledger.wait_for_offer(10)
        await asyncio.sleep(0.3)
        assert len(ledger.offered) == 10
        ledger.open_gate()
        await ledger.wait_for_events(100)
    assert values(ledger) == list(range(100))


async def test_a_message_arrives_without_waiting_for_a_clock(
    kafka_client: KafkaClient, kafka_service: KafkaService
) -> None:
    if kafka_service.kind == "tansu":
        pytest.skip("it looks for new messages only now and then")
    topic = await kafka_client.create_topic()
    ledger = Ledger()
    took = []
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_until(lambda: bool(ledger.positions))
        for number in range(21):
            begun = time.perf_counter()
            await kafka_client.send(topic, numbered(1, first=number))
            await ledger.wait_for_events(number + 1)
            took.append(time.perf_counter() - begun)
    # Far below the half second that a fetch may wait, and above what any machine needs.
    assert sorted(took)[10] < 0.25


async def test_stopping_leaves_no_task_and_no_socket(kafka_client: KafkaClient) -> None:
    topic = await kafka_client.create_topic(partitions=3)
    before = _sockets()
    tasks = asyncio.all_tasks()
    for delay in (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5):
        async with driving(trigger(kafka_client, topic), Ledger()):
            await asyncio.sleep(delay)
    await eventually(lambda: _sockets() <= before)
    assert asyncio.all_tasks() == tasks


def _sockets() -> int:
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += stat.S_ISSOCK(entry.stat().st_mode)
    return count
