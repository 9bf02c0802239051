"""Fixtures of the memory broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.memory import MemoryBroker


@pytest.fixture(scope="session")
def memory_broker() -> Iterator[MemoryBroker]:
    """A broker for the tests of this process."""
    with MemoryBroker() as broker:
        yield broker
