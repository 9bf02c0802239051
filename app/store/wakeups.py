"""Wake-ups between processes: "look at this topic", never data.

The rows are the truth. A wake-up may be lost, doubled or early; whoever waits also looks by itself once a second. A
NOTIFY inside every commit would hold one lock of the whole server through each commit, so pokes are collected and sent
by a task of their own: the first at once, further ones at most every 10 ms.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import asyncpg

from app.kernel.telemetry import LimitedLog, get_logger
from app.store.database import Database
from app.store.errors import StoreError

_log = get_logger("wakeups")

CHANNEL = "tidegate"
#: Most frequent sending of a process, in seconds.
SPACING = 0.01
#: Pause before a broken listening connection is opened again, in seconds.
RECONNECT_PAUSE = 0.5

TOPICS = frozenset({"demand", "tasks", "runs", "triggers", "dags"})


class Notifier:
    """Sends wake-ups of this process, to its own listeners at once and to other processes through the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sender = uuid.uuid4().hex[:12]
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._listeners: set[Listener] = set()
        self._trouble = LimitedLog(_log)

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database) -> AsyncIterator[Notifier]:
        """A notifier whose sending task lives as long as the block; what is due is sent before it ends."""
        notifier = cls(database)
        sending = asyncio.create_task(notifier._send_for_ever(), name="notifier")
        try:
            yield notifier
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await notifier._send_due()

    def poke(self, *topics: str) -> None:
        """Wake whoever listens to ``topics``. Call it only after the commit. Never blocks, never fails."""
        unknown = set(topics) - TOPICS
        if unknown:
            raise ValueError(f"unknown wake-up topics: {sorted(unknown)}")
        self._due.update(topics)
        self._wake.set()
        for listener in self._listeners:
            listener.hear(topics)

    async def _send_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            await self._send_due()
            await asyncio.sleep(SPACING)

    async def _send_due(self) -> None:
        self._wake.clear()
        due, self._due = self._due, set()
        if not due:
            return
        try:
            async with self._database.glance() as connection:
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, f"{self._sender}:{','.join(sorted(due))}")
        except StoreError:
            # Lost wake-ups are harmless: listeners look by themselves, and hear all topics after a reconnect.
            return
        except Exception as error:  # noqa: BLE001 — the task that sends must outlive whatever one NOTIFY meets
            self._trouble.failed("notify", f"wake-ups cannot be sent: {error!r}", action="notify_failed")


class Listener:
    """Waits for wake-ups on some topics."""

    def __init__(self, notifier: Notifier, topics: Iterable[str]) -> None:
        self._notifier = notifier
        self.topics = frozenset(topics)
        self._heard: set[str] = set()
        self._wake = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database, notifier: Notifier, topics: Iterable[str]) -> AsyncIterator[Listener]:
        """A listener whose connection lives as long as the block and is reopened whenever it breaks."""
        listener = cls(notifier, topics)
        notifier._listeners.add(listener)
        listening = asyncio.create_task(listener._listen_for_ever(database), name="listener")
        try:
            yield listener
        finally:
            notifier._listeners.discard(listener)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    def hear(self, topics: Iterable[str]) -> None:
        """Note that ``topics`` were poked."""
        heard = self.topics.intersection(topics)
        if heard:
            self._heard |= heard
            self._wake.set()

    async def wait(self, *, timeout: float = 1.0) -> set[str]:
        """Topics heard since the last call, waiting up to ``timeout`` seconds for the first; empty on time-out."""
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return set()
        self._wake.clear()
        heard, self._heard = self._heard, set()
        return heard

    async def _listen_for_ever(self, database: Database) -> None:
        while True:
            try:
                async with database.session() as connection:
                    closed = asyncio.Event()
                    connection.add_termination_listener(lambda _, closed=closed: closed.set())
                    await connection.add_listener(CHANNEL, self._on_notification)
                    self.hear(self.topics)  # what was poked while nobody listened
                    await closed.wait()
            except (StoreError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pass  # the pause below, then the next try; callers look by themselves meanwhile
            await asyncio.sleep(RECONNECT_PAUSE)

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        sender, _, topics = payload.partition(":")
        if sender != self._notifier._sender:
            self.hear(topics.split(","))
