"""Fixtures of SQS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.services.moto import MotoServer, SqsAdministration


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoServer]:
    """A moto server for the tests of this process."""
    with MotoServer() as server:
        yield server


@pytest.fixture
async def sqs_administration(moto_server: MotoServer) -> AsyncIterator[SqsAdministration]:
    """Requests straight to the server."""
    async with SqsAdministration(moto_server.url) as administration:
        yield administration
