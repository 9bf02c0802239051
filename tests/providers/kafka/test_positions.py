"""Where reading begins and resumes, on a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from tests.contracts.ledger import Driver, Ledger, driving, eventually
from tests.providers.kafka.support import by_partition, lanes, numbered, trigger, until_committed, values
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient, topic_name

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(120)]


async def test_five_thousand_messages_of_six_partitions_are_each_one_event(kafka_client: KafkaClient) -> None:
    topic = await kafka_client.create_topic(partitions=6)
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await kafka_client.send(topic, numbered(5000), partitions=6)
        await ledger.wait_for_events(5000)
        ends = {number: 834 if number < 2 else 833 for number in range(6)}
        await until_committed(kafka_client, topic, ends)
    assert Counter(values(ledger)) == Counter(range(5000))
    assert by_partition(ledger) == {number: list(range(end)) for number, end in ends.items()}
    assert max(map(len, ledger.batches)) <= 500
    assert ledger.duplicates == []


async def test_a_crash_between_store_and_copy_repeats_and_skips_nothing(kafka_client: KafkaClient) -> None:
    topic = await kafka_client.create_topic(partitions=6)
    await kafka_client.send(topic, numbered(600), partitions=6)
    ledger = Ledger()
    for _ in range(3):
        seen = len(ledger.batches)
        task = asyncio.create_task(_commit_once(kafka_client, topic, ledger))
        await task
        assert len(ledger.batches) <= seen + 1
    async with driving(trigger(kafka_client, topic, batch_size=100), ledger):
        await ledger.wait_for_events(600)
        await until_committed(kafka_client, topic, dict.fromkeys(range(6), 100))
    assert by_partition(ledger) == {number: list(range(100)) for number in range(6)}
    assert ledger.duplicates == []


async def _commit_once(client: KafkaClient, topic: str, ledger: Ledger) -> None:
    driver = Driver(trigger(client, topic, batch_size=100), ledger, stop_after_commit=True)
    driver.start()
    await driver.wait_ended()


@pytest.mark.parametrize("committed", [0, 40])
async def test_the_stored_position_wins_over_the_groups_offset(kafka_client: KafkaClient, committed: int) -> None:
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(20))
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(20)
    await kafka_client.commit(topic, {0: committed}, group=f"group-{topic}")
    async with driving(trigger(kafka_client, topic), ledger):
        await until_committed(kafka_client, topic, {0: 20})
        await kafka_client.send(topic, numbered(3, first=20))
        await ledger.wait_for_events(23)
        await until_committed(kafka_client, topic, {0: 23})
    assert values(ledger) == list(range(23))
    assert ledger.duplicates == []


async def test_a_first_start_stores_and_shows_its_position_at_once(kafka_client: KafkaClient) -> None:
    topic = await kafka_client.create_topic(partitions=2)
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_until(lambda: bool(ledger.positions))
        await until_committed(kafka_client, topic, {0: 0, 1: 0})
    assert lanes(ledger) == {"topic": lanes(ledger)["topic"], "0": 0, "1": 0}
    await kafka_client.send(topic, numbered(3))
    # Even a watcher changed to "latest" goes on from what is stored.
    async with driving(trigger(kafka_client, topic, auto_offset_reset="latest"), ledger):
        await ledger.wait_for_events(3)


async def test_latest_begins_at_the_end_of_a_first_start(
    kafka_client: KafkaClient, kafka_service: KafkaService
) -> None:
    if kafka_service.kind == "tansu":
        pytest.skip("its end offsets are not those of the log")
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(5))
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic, auto_offset_reset="latest"), ledger):
        await ledger.wait_until(lambda: bool(ledger.positions))
    assert lanes(ledger)["0"] == 5
    await kafka_client.send(topic, numbered(2, first=5))
    async with driving(trigger(kafka_client, topic, auto_offset_reset="latest"), ledger):
        await ledger.wait_for_events(2)
    assert values(ledger) == [5, 6]


@pytest.mark.parametrize("running", [True, False])
async def test_new_partitions_are_found_and_read_from_their_start(
    kafka_client: KafkaClient, kafka_service: KafkaService, *, running: bool
) -> None:
    if kafka_service.kind == "tansu":
        pytest.skip("it cannot add partitions")
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(2))
    ledger = Ledger()
    options = {"auto_offset_reset": "latest"}
    async with driving(trigger(kafka_client, topic, **options), ledger):
        await ledger.wait_until(lambda: bool(ledger.positions))
        if running:
            await _add_partition(kafka_client, topic)
            await ledger.wait_for_events(4)
    if not running:
        await _add_partition(kafka_client, topic)
        async with driving(trigger(kafka_client, topic, **options), ledger):
            await ledger.wait_for_events(4)
    assert by_partition(ledger) == {0: [2, 3], 1: [0, 1]}


async def _add_partition(client: KafkaClient, topic: str) -> None:
    await client.add_partitions(topic, 2)
    await client.send(topic, numbered(4, first=2), partitions=2)


@pytest.mark.parametrize("running", [True, False])
async def test_a_topic_may_appear_later(kafka_client: KafkaClient, *, running: bool) -> None:
    topic = topic_name("late")
    ledger = Ledger()
    options = {"auto_offset_reset": "latest"}
    async with driving(trigger(kafka_client, topic, **options), ledger) as driver:
        await eventually(lambda: driver.status.consecutive)
        assert topic in str(driver.status.errors[0])
        await ledger.wait_until(lambda: bool(ledger.positions))
        if running:
            await _create_and_send(kafka_client, topic)
            await ledger.wait_for_events(3)
            await eventually(lambda: driver.status.consecutive == 0)
    if not running:
        await _create_and_send(kafka_client, topic)
        async with driving(trigger(kafka_client, topic, **options), ledger):
            await ledger.wait_for_events(3)
    assert values(ledger) == [0, 1, 2]


async def _create_and_send(client: KafkaClient, topic: str) -> None:
    await client.create_topic(topic)
    await client.send(topic, numbered(3))


async def test_one_missing_topic_does_not_hold_up_the_others(kafka_client: KafkaClient) -> None:
    present, absent = await kafka_client.create_topic(), topic_name("absent")
    ledger = Ledger()
    async with driving(trigger(kafka_client, present, absent), ledger) as driver:
        await kafka_client.send(present, numbered(3))
        await ledger.wait_for_events(3)
        await eventually(lambda: driver.status.consecutive)
        assert absent in str(driver.status.errors[-1])
        assert driver.status.recoveries == 0
    assert {event.source.rpartition(":")[2] for event in ledger.events if event.source} == {present}


@pytest.mark.parametrize("running", [True, False])
async def test_a_topic_made_anew_is_read_from_its_start(
    kafka_client: KafkaClient, kafka_service: KafkaService, caplog: pytest.LogCaptureFixture, *, running: bool
) -> None:
    if kafka_service.kind == "tansu":
        pytest.skip("it goes on describing a topic that was deleted")
    caplog.set_level(logging.WARNING, logger="tidegate.trigger")
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(4))
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(4)
        if running:
            await _make_anew(kafka_client, topic)
            await ledger.wait_for_events(10)
    if not running:
        await _make_anew(kafka_client, topic)
        async with driving(trigger(kafka_client, topic), ledger):
            await ledger.wait_for_events(10)
    assert sorted(values(ledger)) == list(range(10))
    assert len({event.key for event in ledger.events}) == 10
    # While it runs the broker may be first to tell, by refusing the offset.
    assert "kafka.recreated" in caplog.text or (running and "kafka.out_of_range" in caplog.text)


async def _make_anew(client: KafkaClient, topic: str) -> None:
    """More messages than before: only the topic's id tells that offset 4 is not the next one."""
    await client.delete_topic(topic)
    await client.create_topic(topic)
    await client.send(topic, numbered(6, first=4))


async def test_messages_deleted_unread_are_reported_and_reading_goes_on(
    kafka_client: KafkaClient, kafka_service: KafkaService, caplog: pytest.LogCaptureFixture
) -> None:
    if not kafka_service.refuses_out_of_range:
        pytest.skip(f"{kafka_service.title} leaves a fetch out of range unanswered")
    caplog.set_level(logging.WARNING, logger="tidegate.trigger")
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(5))
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(5)
    await kafka_client.send(topic, numbered(10, first=5))
    await kafka_client.delete_records(topic, {0: 12})
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(8)
        await until_committed(kafka_client, topic, {0: 15})
    assert values(ledger) == [0, 1, 2, 3, 4, 12, 13, 14]
    assert "7 messages were deleted unread" in caplog.text


async def test_a_position_beyond_the_end_goes_back_to_the_start(
    kafka_client: KafkaClient, kafka_service: KafkaService, caplog: pytest.LogCaptureFixture
) -> None:
    if not kafka_service.refuses_out_of_range:
        pytest.skip(f"{kafka_service.title} leaves a fetch out of range unanswered")
    caplog.set_level(logging.WARNING, logger="tidegate.trigger")
    topic = await kafka_client.create_topic()
    await kafka_client.send(topic, numbered(3))
    ledger = Ledger()
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(3)
    lanes(ledger)["0"] = 99
    await kafka_client.send(topic, numbered(1, first=3))
    async with driving(trigger(kafka_client, topic), ledger):
        await ledger.wait_for_events(4)
        await until_committed(kafka_client, topic, {0: 4})
    assert values(ledger) == [0, 1, 2, 3]
    assert len(ledger.duplicates) == 3
    assert "the log was cut short" in caplog.text
