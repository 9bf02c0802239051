"""Brokers and stores for the tests of the providers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contracts.conftest import ledger, memory_broker, moto_server, nothing_leaks
from tests.contracts.harness_sqs import SqsHarness
from tests.services.moto import MotoServer

__all__ = ["ledger", "memory_broker", "moto_server", "nothing_leaks", "ordered_sqs", "sqs"]


@pytest.fixture
async def sqs(moto_server: MotoServer, nothing_leaks: None) -> AsyncIterator[SqsHarness]:
    """A fresh standard queue behind an HTTP proxy."""
    harness = SqsHarness(moto_server, keeps_order=False)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


@pytest.fixture
async def ordered_sqs(moto_server: MotoServer, nothing_leaks: None) -> AsyncIterator[SqsHarness]:
    """A fresh FIFO queue behind an HTTP proxy."""
    harness = SqsHarness(moto_server)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()
