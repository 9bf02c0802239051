"""The one door to PostgreSQL: pools, transactions, and what happens when the server is away."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

import asyncpg
from sqlalchemy import event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.kernel.errors import UnsupportedDatabase
from app.store.errors import CONNECT_ERRORS, Conflict, DatabaseUnavailable, translate, translate_connecting

Result = TypeVar("Result")
#: A connection in a transaction, as the services see it.
Connection: TypeAlias = AsyncConnection
#: A raw connection of the hot pool. JSON columns are texts on it.
HotConnection = Any

CONNECT_TIMEOUT = 10.0
COMMAND_TIMEOUT = 60.0
ATTEMPTS_ON_CONFLICT = 10
OLDEST_SERVER = 150000

#: Longest that what a pipeline file declares may be worked on between two statements of its transaction.
_IDLE_IN_DECLARATIONS = "60s"
_SESSION = {
    # Death of a client inside a long statement is noticed within this time, so that its session locks are freed.
    "client_connection_check_interval": "250ms",
    # A process that stands still, or is cut off, in the middle of a transaction keeps its locks: peers could neither
    # take over its triggers nor store events for the DAGs it locked. It must let go before its lease is over.
    "idle_in_transaction_session_timeout": "5s",
    # A host that is cut off says no goodbye: the server ends its sessions, and with them their locks, within this time.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "11s",
    "timezone": "UTC",
    # The hot statements are planned for the values at hand; a generic plan over arrays misjudges their size.
    "plan_cache_mode": "auto",
    "jit": "off",
}


class PoolerRefused(UnsupportedDatabase):
    """A transaction pooler stands before the database; session locks and LISTEN do not work through it."""


class ServerTooOld(UnsupportedDatabase):
    """The server is older than PostgreSQL 15."""


def _to_json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))


class Database:
    """Connections to one PostgreSQL.

    ``transaction()`` gives a SQLAlchemy connection, ``hot()`` a bare asyncpg one for the few statements whose cost
    matters; both commit on a clean exit and roll back otherwise, and both raise the errors of ``app.store.errors``.
    """

    def __init__(
        self,
        dsn: str,
        engine: AsyncEngine,
        pool: asyncpg.Pool[Any],
        *,
        open_connection: Callable[[], Awaitable[asyncpg.Connection[Any]]],
    ) -> None:
        self.dsn = dsn
        self._engine = engine
        self._pool = pool
        self._open = open_connection
        self._aside: asyncpg.Connection[Any] | None = None
        self._aside_lock = asyncio.Lock()

    @classmethod
    async def connect(cls, dsn: str, *, pool_size: int = 8, application_name: str = "tidegate") -> Database:
        """Open the pools and check the server.

        Raises :class:`DatabaseUnavailable`, :class:`app.store.errors.DatabaseRefused`, :class:`PoolerRefused` or
        :class:`ServerTooOld`.
        """
        session = {**_SESSION, "application_name": application_name}

        patient = {**session, "idle_in_transaction_session_timeout": _IDLE_IN_DECLARATIONS}

        async def open_connection(*_: Any, **__: Any) -> asyncpg.Connection[Any]:
            return await asyncpg.connect(
                dsn, timeout=CONNECT_TIMEOUT, command_timeout=COMMAND_TIMEOUT, server_settings=patient
            )

        try:
            probe = await open_connection()
        except CONNECT_ERRORS as error:
            raise translate_connecting(error) from error
        try:
            await _check_server(probe)
        finally:
            await probe.close()
        engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=open_connection,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=CONNECT_TIMEOUT,
            json_serializer=_to_json,
            # Errors are logged; payloads, sources and arguments are nobody's business there.
            hide_parameters=True,
        )
        event.listen(engine.sync_engine, "checkout", _refuse_closed)
        pool = await asyncpg.create_pool(
            dsn,
            # No floor: the pool would try to keep it while the server is away, and log each try.
            min_size=0,
            max_size=pool_size,
            timeout=CONNECT_TIMEOUT,
            command_timeout=COMMAND_TIMEOUT,
            server_settings=session,
            # We hold no session state on these connections; the default reset costs a round trip per use.
            reset=_keep_session,
        )
        return cls(dsn, engine, pool, open_connection=open_connection)

    async def close(self) -> None:
        """Close every connection. Bounded: connections that do not end by themselves are cut."""
        if self._aside is not None:
            self._aside.terminate()
        await self._engine.dispose()
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except TimeoutError:
            self._pool.terminate()

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction on a SQLAlchemy connection."""
        with _translated() as heed_cancellation:
            async with self._engine.begin() as connection:
                heed_cancellation()
                yield connection

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[HotConnection]:
        """A transaction on a bare asyncpg connection: for the hot statements only."""
        with _translated() as heed_cancellation:
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection, connection.transaction():
                heed_cancellation()
                yield connection

    @asynccontextmanager
    async def glance(self) -> AsyncIterator[HotConnection]:
        """A bare connection outside any transaction: each statement commits by itself, in one round trip, not three."""
        with _translated() as heed_cancellation:
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection:
                heed_cancellation()
                try:
                    yield connection
                except asyncio.CancelledError:
                    # The pool would first wait for the server to confirm that it gave up; it may be frozen.
                    connection.terminate()
                    raise

    async def glance_aside(self, look: Callable[[HotConnection], Awaitable[Result]], *, limit: float) -> Result:
        """``look`` on a connection kept for this alone, so that it never waits for the pool; in ``limit`` seconds.

        Raises :class:`DatabaseUnavailable` if the server does not answer in time. One look at a time: callers queue
        within their limit.
        """
        with _translated():
            async with asyncio.timeout(limit), self._aside_lock:
                connection = self._aside
                if connection is None or connection.is_closed():
                    connection = self._aside = await self._open()
                try:
                    return await look(connection)
                except BaseException:
                    # Whatever it was, the next look begins anew; and nobody waits for a frozen server's confirmation.
                    connection.terminate()
                    raise
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def session(self) -> AsyncIterator[HotConnection]:
        """A connection of its own outside the pools, for LISTEN and session locks; closed on exit."""
        with _translated() as heed_cancellation:
            try:
                connection = await asyncpg.connect(
                    self.dsn, timeout=CONNECT_TIMEOUT, command_timeout=COMMAND_TIMEOUT, server_settings=_SESSION
                )
            except CONNECT_ERRORS as error:
                raise translate_connecting(error) from error
            try:
                heed_cancellation()
                yield connection
            finally:
                try:
                    await connection.close(timeout=2)
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                    connection.terminate()

    async def retrying(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Run ``work`` in a transaction, again after a :class:`Conflict` (a bounded number of times)."""
        return await _again_on_conflict(self.transaction, work)

    async def retrying_hot(self, work: Callable[[HotConnection], Awaitable[Result]]) -> Result:
        """Like :meth:`retrying`, on a hot connection."""
        return await _again_on_conflict(self.hot, work)

    async def retrying_statement(self, work: Callable[[HotConnection], Awaitable[Result]]) -> Result:
        """Like :meth:`retrying_hot` for work of a single statement, which needs no transaction around it."""
        return await _again_on_conflict(self.glance, work)

    async def until_available(
        self, work: Callable[[], Awaitable[Result]], *, on_trouble: Callable[[BaseException], None] | None = None
    ) -> Result:
        """Run ``work`` and, while the database is away, again after a pause of at most a second."""
        pause = 0.05
        while True:
            try:
                return await work()
            except DatabaseUnavailable as error:
                if on_trouble is not None:
                    on_trouble(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)


async def _again_on_conflict(open_transaction: Any, work: Callable[[Any], Awaitable[Result]]) -> Result:
    for attempt in range(1, ATTEMPTS_ON_CONFLICT + 1):
        try:
            async with open_transaction() as connection:
                return await work(connection)
        except Conflict:
            if attempt == ATTEMPTS_ON_CONFLICT:
                raise
            await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))
    raise AssertionError("unreachable")


@contextmanager
def _translated() -> Iterator[Callable[[], None]]:
    """Raise errors as ours, except that a cancelled task stays cancelled whatever its connection met afterwards.

    A cancelled statement makes the roll-back, or giving the connection back, fail. That failure would take the place of
    the cancellation, and whoever waits for the end of the task would wait for ever. Waiting for a connection may even
    end well although the task was cancelled meanwhile (``asyncio.wait_for`` of Python 3.11): what is yielded raises
    the cancellation then.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()

    def heed_cancellation() -> None:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError

    try:
        yield heed_cancellation
    except Exception as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        ours = translate(error)
        if ours is error:
            raise
        raise ours from error


async def _keep_session(_: object) -> None:
    """Leave a connection as it is when it goes back to the pool."""


def _refuse_closed(connection: Any, *_: object) -> None:
    """Have the pool replace connections that a server has closed since, by its restart say, before they are used."""
    if connection.driver_connection.is_closed():
        raise InvalidatePoolError


async def _check_server(connection: asyncpg.Connection[Any]) -> None:
    version = int(await connection.fetchval("SELECT current_setting('server_version_num')"))
    if version < OLDEST_SERVER:
        raise ServerTooOld(f"PostgreSQL 15 or later is needed; this server says {version // 10000}.{version % 10000}")
    if connection.get_server_pid() != await connection.fetchval("SELECT pg_backend_pid()"):
        raise PoolerRefused(
            "a connection pooler stands between this process and PostgreSQL. Session locks and LISTEN do not work "
            "through a transaction pooler: point TIDEGATE_DATABASE_URL at the server itself."
        )
