"""Fixtures of SQS, to import into a ``conftest.py``."""

from __future__ import annotations

import atexit
import functools
from collections.abc import AsyncIterator

import pytest

from tests.services.moto import MotoServer, SqsAdministration


@functools.cache
def _shared() -> MotoServer:
    """One for the whole process, however many conftest files import the fixture."""
    server = MotoServer()
    server.start()
    atexit.register(server.stop)
    return server


@pytest.fixture(scope="session")
def moto_server() -> MotoServer:
    """One moto server for all tests of this process; each uses queues of its own."""
    return _shared()


@pytest.fixture
async def sqs_administration(moto_server: MotoServer) -> AsyncIterator[SqsAdministration]:
    """Requests straight to the server."""
    async with SqsAdministration(moto_server.url) as administration:
        yield administration
