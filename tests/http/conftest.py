"""Fixtures: the API over a real database, called in-process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from app.interfaces.http.application import create_application
from app.kernel.settings import Settings, load_settings
from app.processes.host import Host, open_host
from app.services.events import EventPoster
from tests.triggerer.conftest import keys, world

__all__ = ["api", "database", "host", "keys", "world"]

PASSWORD = "a password of the tests"


@pytest.fixture
def settings(database_url: str, home: object) -> Settings:
    """Settings with a known password."""
    return load_settings(home=home, database_url=database_url, admin_password=PASSWORD, database_pool_size=4)


@pytest_asyncio.fixture
async def host(settings: Settings, database_url: str) -> AsyncIterator[Host]:
    """An open host of an API server."""
    async with open_host(settings, database_url, job_type="api_server", stop=asyncio.Event()) as opened:
        yield opened


@pytest.fixture
def database(host: Host) -> object:
    """The host's database."""
    return host.database


@pytest_asyncio.fixture
async def anonymous(host: Host) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a token."""
    async with EventPoster.open(host.database, host.notifier) as poster:
        transport = httpx.ASGITransport(create_application(host, poster))
        async with httpx.AsyncClient(transport=transport, base_url="http://tidegate") as client:
            yield client


@pytest_asyncio.fixture
async def api(anonymous: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of `admin`."""
    answer = await anonymous.post("/auth/token", json={"username": "admin", "password": PASSWORD})
    assert answer.status_code == 201, answer.text
    anonymous.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    return anonymous
