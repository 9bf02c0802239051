"""The door to PostgreSQL across what happens to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.kernel.settings import load_settings
from app.store.database import Database
from app.store.errors import DatabaseUnavailable, StoreError
from app.store.wakeups import Listener, Notifier
from tests.postgres import PostgresForTests, running_postgres
from tests.services.proxy import Mode, Proxy
from tests.waiting import eventually

READERS = 5


class FrozenServer:
    """A server of its own that can be made to hang."""

    def __init__(self, postgres: PostgresForTests) -> None:
        self.url = postgres.url("postgres")
        self._postmaster = psutil.Process(postgres.server.pid)
        self._frozen: list[psutil.Process] = []

    def freeze(self) -> None:
        """Connections stay, or are accepted by the kernel, and nothing answers."""
        self._frozen = [self._postmaster, *self._postmaster.children(recursive=True)]
        for process in self._frozen:
            process.suspend()

    def thaw(self) -> None:
        """Go on."""
        frozen, self._frozen = self._frozen, []
        for process in frozen:
            process.resume()


@pytest.fixture(scope="module")
def silent_postgres() -> Iterator[PostgresForTests]:
    with running_postgres(template=False) as postgres:
        yield postgres


@pytest.fixture
def frozen_server(silent_postgres: PostgresForTests) -> Iterator[FrozenServer]:
    server = FrozenServer(silent_postgres)
    yield server
    server.thaw()


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


async def test_a_transaction_that_stands_still_lets_go_before_a_lease_is_over(database_url: str) -> None:
    """Its locks would keep peers from taking over and from storing events for 120 s before."""
    limit = load_settings().lease_seconds
    shown = "SELECT extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)"
    async with await Database.connect(database_url, pool_size=2) as database:
        async with database.hot() as hot:
            assert 0 < await hot.fetchval(shown) < limit
        async with database.transaction() as connection:  # a file of 10,000 assets takes a while between statements
            assert 30 < await connection.scalar(text(shown)) < 120


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


async def test_what_breaks_a_session_means_wait_and_try_again(database_url: str) -> None:
    async with await Database.connect(database_url, pool_size=2) as database:

        async def use_a_broken_one() -> None:
            async with database.session() as session:
                async with database.hot() as hot:
                    await hot.execute("SELECT pg_terminate_backend($1)", session.get_server_pid())
                await session.fetchval("SELECT 1")

        with pytest.raises(DatabaseUnavailable):
            await use_a_broken_one()


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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("door", ["transaction", "hot", "glance", "session"])
@pytest.mark.parametrize("after", [0.0, 0.1])
async def test_a_cancellation_is_not_lost_to_a_silent_server(
    frozen_server: FrozenServer, door: str, after: float
) -> None:
    """The server hangs: a task that waits for it ends as cancelled when it is told to, and goes on with nothing."""
    async with await Database.connect(frozen_server.url, pool_size=2) as database:
        over = asyncio.Event()

        async def work_for_ever() -> None:
            while not over.is_set():
                with suppress(StoreError, TimeoutError):
                    async with getattr(database, door)():
                        await asyncio.sleep(0)

        async with database.hot() as one, database.hot() as other:  # the rest has to connect
            assert one is not other
        frozen_server.freeze()
        try:
            tasks = [asyncio.create_task(work_for_ever()) for _ in range(4)]
            await asyncio.sleep(after)
            for task in tasks:
                task.cancel()
            done, pending = await asyncio.wait(tasks, timeout=30)
        finally:
            over.set()
            frozen_server.thaw()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not pending
        assert all(task.cancelled() for task in done)
