"""The sources that are put through the suite, and what is watched during each test."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.harness import SourceHarness
from tests.contracts.ledger import Ledger, eventually
from tests.services.fixtures_kafka import shared_kafka_service
from tests.services.fixtures_memory import memory_broker
from tests.services.fixtures_sqs import moto_server

__all__ = ["broker", "ledger", "memory_broker", "moto_server", "nothing_leaks", "shared_kafka_service", "source"]

#: Module and class of each harness, and the session fixtures that give it its broker.
HARNESSES = {
    "memory": ("tests.contracts.harness_memory", "MemoryHarness", "memory_broker"),
    "sqs": ("tests.contracts.harness_sqs", "SqsHarness", "moto_server"),
    "kafka": ("tests.contracts.harness_kafka", "KafkaHarness", "kafka_service"),
    "kafka-group": ("tests.contracts.harness_kafka", "KafkaGroupHarness", "kafka_service"),
}


def _present() -> list[Any]:
    kafka = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]
    marks = {"sqs": [pytest.mark.sqs], "kafka": kafka, "kafka-group": kafka}
    return [
        pytest.param(name, marks=marks.get(name, []))
        for name, (module, _, _) in HARNESSES.items()
        if importlib.util.find_spec(module) is not None
    ]


@pytest.fixture(autouse=True)
async def nothing_leaks() -> AsyncIterator[None]:
    """No task and no socket outlives a test. Requested before ``source``, so that it looks after that is gone."""
    sockets = _open_sockets()
    yield
    await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()}, within=10)
    await eventually(lambda: _open_sockets() <= sockets, within=10)


@pytest.fixture(scope="session", params=_present())
def broker(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Each source's name with its broker. Of the session, so that it is older than what a test may not leave behind."""
    return request.param, request.getfixturevalue(HARNESSES[request.param][2])


@pytest.fixture
async def source(broker: tuple[str, Any], nothing_leaks: None) -> AsyncIterator[SourceHarness]:
    """A harness with a fresh queue."""
    name, service = broker
    module, class_name, _ = HARNESSES[name]
    harness: SourceHarness = getattr(importlib.import_module(module), class_name)(service)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


@pytest.fixture
def ledger() -> Ledger:
    """An empty store."""
    return Ledger()


def _open_sockets() -> int:
    count = 0
    descriptors = Path("/proc/self/fd")
    for entry in descriptors.iterdir() if descriptors.exists() else ():
        try:
            count += stat.S_ISSOCK(entry.stat().st_mode)
        except OSError:
            continue
    return count
