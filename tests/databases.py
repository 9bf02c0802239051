"""Opening what most tests of services need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from app.store.database import Database
from app.store.wakeups import Notifier


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The test's database."""
    async with await Database.connect(database_url, pool_size=6) as opened:
        yield opened


@pytest_asyncio.fixture
async def notifier(database: Database) -> AsyncIterator[Notifier]:
    """Wake-ups in it."""
    async with Notifier.open(database) as opened:
        yield opened


async def fetch(database: Database, query: str, *values: Any) -> list[Any]:
    """Rows of one query, committed."""
    async with database.hot() as hot:
        rows: list[Any] = await hot.fetch(query, *values)
    return rows
