from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from app.store.database import Database


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with await Database.connect(database_url) as opened:
        yield opened
