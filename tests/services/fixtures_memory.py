"""Fixtures of the memory broker, to import into a ``conftest.py``."""

from __future__ import annotations

import atexit
import functools

import pytest

from tests.services.memory import MemoryBroker


@functools.cache
def _shared() -> MemoryBroker:
    """One for the whole process, however many conftest files import the fixture."""
    broker = MemoryBroker()
    broker.start()
    atexit.register(broker.close)
    return broker


@pytest.fixture(scope="session")
def memory_broker() -> MemoryBroker:
    """One broker for all tests of this process; each uses queues of its own."""
    return _shared()
