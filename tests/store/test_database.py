"""The door to PostgreSQL across what happens to the server."""

from __future__ import annotations

import asyncio

import asyncpg
from sqlalchemy import text

from app.store.database import Database

READERS = 5


async def test_what_the_server_closed_is_never_handed_out(database_url: str) -> None:
    """Each of the idle connections was ended, as by a restart; the next use of each pool works at once."""
    async with await Database.connect(database_url, pool_size=READERS) as database:
        together = asyncio.Barrier(READERS)

        async def use_engine() -> int:
            async with database.transaction() as connection:
                await together.wait()
                found = await connection.scalar(text("SELECT pg_backend_pid()"))
            return int(found)

        async def use_hot_pool() -> int:
            async with database.hot() as connection:
                await together.wait()
                return int(await connection.fetchval("SELECT pg_backend_pid()"))

        for use in (use_engine, use_hot_pool):
            before = await asyncio.gather(*(use() for _ in range(READERS)))
            administration = await asyncpg.connect(database_url)
            for pid in before:
                assert await administration.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
            await administration.close()
            after = await asyncio.gather(*(use() for _ in range(READERS)))
            assert not set(before) & set(after)
