"""The door to PostgreSQL across what happens to the server."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.store.errors import DatabaseUnavailable
from app.store.wakeups import Listener, Notifier
from tests.services.proxy import Mode, Proxy
from tests.waiting import eventually

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


@pytest.mark.parametrize("state", ["53100", "53200", "53300", "58030", "25006", "57014", "57P03", "08006"])
async def test_what_passes_means_wait_and_try_again(database_url: str, state: str) -> None:
    """A full disk, say, or a server demoted to read-only: nobody's defect, and nobody's value is to blame."""
    async with await Database.connect(database_url, pool_size=2) as database:
        raising = f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{state}'; END $$"
        with pytest.raises(DatabaseUnavailable):
            async with database.hot() as connection:
                await connection.execute(raising)
        with pytest.raises(DatabaseUnavailable):
            async with database.transaction() as plain:
                await plain.execute(text(raising))


async def test_a_statement_that_fails_does_not_tell_its_values(database_url: str) -> None:
    async with await Database.connect(database_url, pool_size=2) as database:
        with pytest.raises(DBAPIError) as caught:
            async with database.transaction() as connection:
                await connection.execute(text("SELECT missing WHERE 'x' = :secret"), {"secret": "hunter2"})
        assert "hunter2" not in str(caught.value)


async def test_wake_ups_go_on_after_one_that_could_not_be_sent(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        await Database.connect(database_url, pool_size=2) as database,
        Notifier.open(database) as near,
        Notifier.open(database) as far,
        Listener.open(database, far, {"demand"}) as listener,
    ):
        await eventually(lambda: listener.wait(timeout=0.1), what="the listener listens")
        with monkeypatch.context() as patched:
            patched.setattr(near, "_database", None)
            near.poke("demand")
            await eventually(lambda: near._trouble._troubles, what="its failure was told")
        near.poke("demand")
        await eventually(lambda: listener.wait(timeout=0.1), what="the next wake-up")


@pytest.mark.parametrize("door", ["hot", "glance", "transaction"])
async def test_who_is_cancelled_while_the_server_is_mute_stays_cancelled(
    database_url: str, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    """What the roll-back meets must not take the place of the cancellation: the task would go on for ever."""
    monkeypatch.setattr("app.store.database.CONNECT_TIMEOUT", 0.5)
    parts = urlsplit(database_url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with Proxy((parts.hostname, parts.port)) as proxy:
        dsn = parts._replace(netloc=parts.netloc.replace(str(parts.port), str(proxy.port))).geturl()
        async with await Database.connect(dsn, pool_size=1) as database:
            there = asyncio.Event()

            async def work() -> None:
                async with getattr(database, door)() as connection:
                    there.set()
                    statement = "SELECT pg_sleep(600)"
                    await connection.execute(text(statement) if door == "transaction" else statement)

            working = asyncio.create_task(work())
            await there.wait()
            await proxy.set_mode(Mode.MUTE)
            await asyncio.sleep(0.2)  # The statement is on its way; that it was sent cannot be seen from here.
            working.cancel()
            if door == "transaction":
                await proxy.drop_connections()
            await asyncio.wait([working], timeout=30)
            await proxy.set_mode(Mode.PASS)
            assert working.cancelled()
