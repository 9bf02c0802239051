"""Fixtures: a database, its wake-ups, and a small world in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cryptography.fernet import Fernet

from app.kernel.settings import Settings
from app.services.secrets import Keys
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.triggerer.stage import Stage
from tests.triggerer.world import World


@pytest.fixture(scope="session")
def keys() -> Keys:
    return Keys(Fernet.generate_key().decode())


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with await Database.connect(database_url, pool_size=8) as database:
        yield database


@pytest_asyncio.fixture
async def notifier(database: Database) -> AsyncIterator[Notifier]:
    async with Notifier.open(database) as notifier:
        yield notifier


@pytest_asyncio.fixture
async def world(database: Database, keys: Keys) -> World:
    return World(database, keys)


@pytest.fixture
def stage(world: World, notifier: Notifier, settings: Settings, keys: Keys, database: Database) -> Stage:
    return Stage(world, notifier, settings, keys, database)
