"""Fixtures that give tests a real Kafka broker. Load as a plugin, or import them into a ``conftest.py``.

Tests that use one carry ``@pytest.mark.xdist_group("kafka")``, so that one worker runs them all and one broker serves
them; the header says which broker that is.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.services.kafka import BrokerUnavailable, KafkaService, kafka_service, planned_broker
from tests.services.kafka_client import KafkaClient

__all__ = ["kafka_client", "own_kafka_service", "shared_kafka_service"]


def pytest_report_header() -> str:
    return f"kafka: {planned_broker()}"


def _start() -> KafkaService:
    try:
        service = kafka_service()
    except BrokerUnavailable as error:
        pytest.fail(f"no Kafka broker: {error}")
    service.start()
    return service


@functools.cache
def _shared() -> KafkaService:
    """One for the whole process, however many conftest files import the fixture."""
    service = _start()
    atexit.register(service.close)
    return service


@pytest.fixture(scope="session", name="kafka_service")
def shared_kafka_service() -> KafkaService:
    """One broker for all tests of this process. Tests use topics of their own, must not stop it, and leave it awake."""
    return _shared()


@pytest.fixture
def own_kafka_service() -> Iterator[KafkaService]:
    """A broker that the test may stop, kill and start."""
    service = _start()
    try:
        yield service
    finally:
        service.close()


@pytest.fixture
async def kafka_client(kafka_service: KafkaService) -> AsyncIterator[KafkaClient]:
    """Creates topics and sends messages at the shared broker."""
    async with KafkaClient.connect(kafka_service.bootstrap) as client:
        yield client
