"""The lease of a process: its row, its session lock, its heartbeats.

Heartbeats are sent by a thread with a loop and a connection of its own, so that neither a busy loop nor a full pool of
the process delays them. ``confirmed_at`` is when the lease was last renewed; once that is longer ago than the lease, or
a peer has ended the row, the session is over for good: ``lease_lost`` is set, and whoever holds it stops what it does,
closes the session and opens another one.

A *patient* session is over only once a peer has ended its row. Nobody can do so while the database is away, and every
write of such a process is refused from then on: an outage, however long, then ends neither it nor what it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.store import jobs as statements
from app.store.database import Database, HotConnection
from app.store.errors import StoreError

#: How long a clean end may take, in seconds; after it the lock still goes with the connection.
END_LIMIT = 5.0
_RETRY_PAUSE = 0.25

_log = get_logger("jobs")


class JobSession:
    """A process as its peers see it. Made by :meth:`open`."""

    def __init__(self, database: Database, job_type: str, settings: Settings, *, patient: bool = False) -> None:
        self.id = 0
        self.job_type = job_type
        #: Set on the opener's loop once the lease is lost; never cleared.
        self.lease_lost = asyncio.Event()
        #: ``time.monotonic()`` of the last renewal.
        self.confirmed_at = 0.0
        self._database = database
        self._settings = settings
        self._patient = patient
        self._progress_at = time.monotonic()
        self._details: str | None = None
        self._owner_loop = asyncio.get_running_loop()
        self._opened: Future[None] = Future()
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._trouble = LimitedLog(_log)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        database: Database,
        job_type: str,
        settings: Settings,
        *,
        capacity: int | None = None,
        queues: Sequence[str] | None = None,
        team_name: str | None = None,
        patient: bool = False,
    ) -> AsyncIterator[JobSession]:
        """Register a process of ``job_type`` and keep its lease while the block runs; its row is ended with it.

        Raises :class:`app.store.errors.DatabaseUnavailable` if the server is away at the start.
        """
        session = cls(database, job_type, settings, patient=patient)
        thread = threading.Thread(
            target=session._run, args=(capacity, queues, team_name), name=f"lease-{job_type}", daemon=True
        )
        thread.start()
        try:
            await asyncio.shield(asyncio.wrap_future(session._opened))
            yield session
        finally:
            session._ask_to_stop()
            await asyncio.to_thread(thread.join, END_LIMIT)

    def progress(self) -> None:
        """Say that the process just did what it is there for. Cheap; sent with the next heartbeat."""
        self._progress_at = time.monotonic()

    def describe(self, details: Mapping[str, Any]) -> None:
        """What the process says of itself (a JSON value), sent with the next heartbeat."""
        self._details = json.dumps(details)

    @property
    def lease_seconds(self) -> float:
        """How long the lease lasts without renewal."""
        return self._settings.lease_seconds

    def _ask_to_stop(self) -> None:
        loop, stop = self._thread_loop, self._stop
        if loop is not None and stop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(stop.set)
            except RuntimeError:
                return  # It closed in between, which is what we want.

    # What follows runs in the thread.

    def _run(self, capacity: int | None, queues: Sequence[str] | None, team_name: str | None) -> None:
        try:
            asyncio.run(self._keep(capacity, queues, team_name))
        except BaseException as error:  # noqa: BLE001 — told to the opener, or ends the lease
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                _log.error("the lease thread failed", action="lease_failed", job_id=self.id, exc_info=error)
                self._lose()

    async def _keep(self, capacity: int | None, queues: Sequence[str] | None, team_name: str | None) -> None:
        self._thread_loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._database.session() as connection:
            self.id = await statements.insert_job(
                connection,
                job_type=self.job_type,
                hostname=socket.gethostname(),
                pid=os.getpid(),
                capacity=capacity,
                queues=queues,
                team_name=team_name,
            )
            self.confirmed_at = time.monotonic()
            self._opened.set_result(None)
            over = await self._renew_while_connected(connection)
        while not over:
            over = await self._reconnect()

    async def _reconnect(self) -> bool:
        """One try to go on after the connection broke; true once the session is over."""
        assert self._stop is not None
        if self._stop.is_set():
            return True
        if not self._patient and time.monotonic() - self.confirmed_at > self.lease_seconds:
            self._lose()
            return True
        try:
            async with AsyncExitStack() as stack:
                # Only getting there has a limit: what is renewed afterwards has one for each heartbeat.
                async with asyncio.timeout(self.lease_seconds):
                    connection = await stack.enter_async_context(self._database.session())
                    holds = await statements.hold_job_lock(connection, job_id=self.id)
                if holds:
                    return await self._renew_while_connected(connection)
        except (StoreError, TimeoutError, OSError) as error:
            self._troubled(error)
        await self._pause(_RETRY_PAUSE)
        return False

    async def _renew_while_connected(self, connection: HotConnection) -> bool:
        """Heartbeats until told to stop, fenced (both: true, over) or cut off (false)."""
        assert self._stop is not None
        interval = self._settings.heartbeat_interval
        try:
            while True:
                age = time.monotonic() - self._progress_at
                asked_at = time.monotonic()
                async with asyncio.timeout(interval):
                    alive = await statements.heartbeat(
                        connection, job_id=self.id, progress_age=age, details=self._details
                    )
                if not alive:
                    self._lose()
                    return True
                self.confirmed_at = asked_at
                self._trouble.recovered("lease", "the lease is renewed again", action="lease_recovered", job_id=self.id)
                await self._pause(interval)
                if self._stop.is_set():
                    async with asyncio.timeout(interval):
                        await statements.end_job(connection, job_id=self.id)
                    return True
        except Exception as error:  # noqa: BLE001 — whatever broke it, a new connection is tried
            self._troubled(error)
            return False

    async def _pause(self, seconds: float) -> None:
        assert self._stop is not None
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    def _troubled(self, error: BaseException) -> None:
        message = f"the lease cannot be renewed: {type(error).__name__}: {error}"
        self._trouble.failed("lease", message, action="lease_trouble", job_id=self.id)

    def _lose(self) -> None:
        _log.warning("the lease is lost", action="lease_lost", job_id=self.id)
        try:
            self._owner_loop.call_soon_threadsafe(self.lease_lost.set)
        except RuntimeError:
            return  # The opener's loop is closed: nobody is left to tell.
