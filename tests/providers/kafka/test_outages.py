"""A broker that goes away and comes back, or falls silent."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from providers.kafka.vendor_logs import Forwarder
from tests.contracts.ledger import Driver, Ledger, driving, eventually
from tests.providers.kafka.support import numbered, trigger, until_committed, values
from tests.services.kafka import KafkaService, free_port
from tests.services.kafka_client import KafkaClient

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(180)]

Restart = Callable[[KafkaService], None]


def _stop_and_start(service: KafkaService) -> None:
    service.stop()
    service.start()


def _kill_and_start(service: KafkaService) -> None:
    service.kill()
    service.start()


async def _with_client(service: KafkaService, work: Callable[[KafkaClient], Awaitable[str]]) -> str:
    async with KafkaClient.connect(service.bootstrap) as client:
        return await work(client)


async def test_a_broker_that_is_restarted_half_way(own_kafka_service: KafkaService) -> None:
    """Once stopped cleanly and once killed."""
    if not own_kafka_service.keeps_data:
        pytest.skip(f"{own_kafka_service.title} keeps nothing over a restart")

    async def fill(client: KafkaClient) -> str:
        topic = await client.create_topic(partitions=6)
        await client.send(topic, numbered(2000), partitions=6)
        return topic

    topic = await _with_client(own_kafka_service, fill)
    ledger = Ledger()
    for restart, expected in ((_stop_and_start, 2006), (_kill_and_start, 2012)):
        offered = len(ledger.offered)
        ledger.close_gate()
        async with driving(trigger(_address(own_kafka_service), topic, batch_size=200), ledger) as driver:
            if not offered:
                await ledger.wait_for_offer(1)
            # In a thread: the trigger goes on meanwhile.
            restarting = asyncio.create_task(asyncio.to_thread(restart, own_kafka_service))
            ledger.open_gate()
            await restarting

            async def add(client: KafkaClient, *, expected: int = expected) -> str:
                await client.send(topic, numbered(6, first=expected - 6), partitions=6)
                await ledger.wait_for_events(expected)
                added = (expected - 2000) // 6
                await until_committed(client, topic, {n: (334 if n < 2 else 333) + added for n in range(6)})
                return topic

            await _with_client(own_kafka_service, add)
            await eventually(functools.partial(_is_healthy, driver))
    assert Counter(values(ledger)) == Counter(range(2012))


def _is_healthy(driver: Driver) -> bool:
    return driver.status.consecutive == 0


def _address(service: KafkaService) -> KafkaClient:
    """What :func:`trigger` needs of a client: where the broker is."""
    return KafkaClient(service.bootstrap, admin=None, producer=None)


async def test_a_broker_that_falls_silent_is_noticed_and_read_again(kafka_service: KafkaService) -> None:
    async def create(client: KafkaClient) -> str:
        topic = await client.create_topic()
        await client.send(topic, numbered(3))
        return topic

    topic = await _with_client(kafka_service, create)
    ledger = Ledger()
    async with driving(trigger(_address(kafka_service), topic, request_timeout=1.0), ledger) as driver:
        await ledger.wait_for_events(3)
        kafka_service.freeze()
        try:
            await eventually(lambda: driver.status.consecutive >= 2)
        finally:
            kafka_service.thaw()

        async def send(client: KafkaClient) -> str:
            await client.send(topic, numbered(3, first=3))
            return topic

        await _with_client(kafka_service, send)
        await ledger.wait_for_events(6)
        await eventually(lambda: driver.status.consecutive == 0)
    assert values(ledger) == list(range(6))


async def test_stopping_while_the_broker_is_silent_is_quick(kafka_service: KafkaService) -> None:
    topic = await _with_client(kafka_service, lambda client: client.create_topic())
    ledger = Ledger()
    async with driving(trigger(_address(kafka_service), topic, request_timeout=60.0), ledger) as driver:
        await ledger.wait_until(lambda: bool(ledger.positions))
        kafka_service.freeze()
        try:
            await asyncio.sleep(0.2)
            async with asyncio.timeout(20):
                await driver.stop()
        finally:
            kafka_service.thaw()


async def test_stopping_while_it_connects_to_a_silent_broker_is_quick(kafka_service: KafkaService) -> None:
    kafka_service.freeze()
    try:
        for _ in range(2):
            async with driving(trigger(_address(kafka_service), "any", request_timeout=60.0), Ledger()) as driver:
                await asyncio.sleep(0.2)
                async with asyncio.timeout(20):
                    await driver.stop()
    finally:
        kafka_service.thaw()


async def test_an_absent_broker_floods_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidegate")
    nowhere = KafkaClient(f"127.0.0.1:{free_port()}", admin=None, producer=None)
    async with driving(trigger(nowhere, "any"), Ledger()) as driver:
        await eventually(lambda: driver.status.consecutive >= 4)
    lines = [record for record in caplog.records if record.name.startswith("tidegate")]
    assert len(lines) <= 5
    assert "Connect call failed" in str(driver.status.errors[-1])


def test_the_clients_lines_are_passed_on_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidegate.provider.kafka")
    forwarder = Forwarder(period=3600)
    vendor = logging.getLogger("aiokafka.test_outages")
    with _handling(vendor, forwarder):
        for _ in range(100):
            vendor.error("cannot connect")
        vendor.error("something else")
        forwarder._seen.clear()
        vendor.error("cannot connect")
    assert [record.getMessage() for record in caplog.records if record.name == "tidegate.provider.kafka"] == [
        "client: cannot connect",
        "client: something else",
        "client: cannot connect",
    ]


@contextlib.contextmanager
def _handling(logger: logging.Logger, handler: logging.Handler):  # type: ignore[no-untyped-def]
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
