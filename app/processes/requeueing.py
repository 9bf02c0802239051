"""Requeueing dead letters: filters and schemas in a child with a time limit, then the events in one transaction."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from app.domain.fan_out import Watchers
from app.kernel.children import python_command, scrubbed_environment
from app.kernel.errors import ChildError, InvalidRequest
from app.kernel.frames import FrameStream
from app.kernel.settings import Settings
from app.processes.fan_out_messages import Check, Checked, Ready, ToParent
from app.services.dead_letters import (
    HeldLetter,
    Requeued,
    StillRefused,
    WatchersChanged,
    read_held,
    store_requeued,
)
from app.store.database import Database
from app.store.errors import Conflict
from app.store.wakeups import Notifier

CHILD = "app.processes.fan_out_child"
#: Children of one process at a time; further requests wait for their turn.
MOST_CHILDREN = 2
#: How often watchers may change between check and store before the caller is asked to try again.
_ATTEMPTS = 3
#: How long a child may take until it is ready; a busy machine is no fault of a payload.
_START_LIMIT = 60.0
#: Refusals that an answer names.
_SHOWN = 5


class CheckTooSlow(InvalidRequest):
    """The filters and schemas of dead letter {id} took longer than {limit} s for this payload (setting
    requeue_check_limit). It stays."""


class Checker:
    """Applies watchers to payloads in a child, started when first needed and ended with this."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._child: asyncio.subprocess.Process | None = None
        self._stream: FrameStream | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, limit: float) -> AsyncIterator[Checker]:
        """A checker; ``limit`` is the longest one payload may take, in seconds."""
        checker = cls(limit)
        try:
            yield checker
        finally:
            await checker._end()

    async def check(self, payload: str, watchers: Watchers) -> Checked:
        """Raises :class:`TimeoutError`, and :class:`ChildError` if the child fails; the next check gets a new one.
        :class:`Conflict` if none can be started."""
        if watchers.is_plain:
            return Checked(passing=tuple(each.id for each in watchers.each))
        stream = self._stream or await self._start()
        try:
            async with asyncio.timeout(self._limit):
                await stream.send(Check(payload=payload, watchers=watchers))
                answer = await stream.receive()
        except (TimeoutError, ChildError):
            await self._end()
            raise
        assert isinstance(answer, Checked)
        return answer

    async def _start(self) -> FrameStream:
        try:
            async with asyncio.timeout(_START_LIMIT):
                return await self._spawn()
        except (TimeoutError, ChildError, OSError) as error:
            await self._end()
            raise Conflict(f"no process for filters and schemas can be started now: {error}") from error

    async def _spawn(self) -> FrameStream:
        ours, theirs = socket.socketpair()
        try:
            self._stream = await FrameStream.over(ours, ToParent)
            self._child = await asyncio.create_subprocess_exec(
                *python_command(CHILD, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env=scrubbed_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        finally:
            theirs.close()
        if not isinstance(await self._stream.receive(), Ready):
            raise ChildError("it did not say that it is ready")
        return self._stream

    async def _end(self) -> None:
        stream, child = self._stream, self._child
        self._stream = self._child = None
        if child is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await asyncio.shield(child.wait())
        if stream is not None:
            await stream.aclose()


class Requeuer:
    """Makes events of dead letters, for an API server or a command."""

    def __init__(self, database: Database, notifier: Notifier, settings: Settings) -> None:
        self._database = database
        self._notifier = notifier
        self._limit = settings.requeue_check_limit
        self._room = asyncio.Semaphore(MOST_CHILDREN)

    @asynccontextmanager
    async def checking(self) -> AsyncIterator[Checker]:
        """A checker for several letters, in its turn."""
        async with self._room, Checker.open(self._limit) as checker:
            yield checker

    async def requeue(self, letter_id: int, *, payload: str | None = None, checker: Checker | None = None) -> Requeued:
        """Make the events that the letter's message would have made, of ``payload`` (JSON text) if given.

        Raises what :func:`app.services.dead_letters.read_held` raises, :class:`StillRefused`, :class:`CheckTooSlow`.
        """
        if checker is None:
            async with self.checking() as own:
                return await self.requeue(letter_id, payload=payload, checker=own)
        for _ in range(_ATTEMPTS):
            letter = await read_held(self._database, letter_id, has_payload=payload is not None)
            text = letter.row.payload if payload is None else payload
            assert text is not None
            checked = await self._checked(letter, text, checker=checker)
            with suppress(WatchersChanged):
                return await store_requeued(
                    self._database,
                    self._notifier,
                    letter,
                    payload=text,
                    passing=checked.passing,
                    refusals=checked.refusals,
                )
        raise Conflict(f"the watchers of dead letter {letter_id} keep changing")

    async def _checked(self, letter: HeldLetter, payload: str, *, checker: Checker) -> Checked:
        watchers = Watchers.of((each.id, each.when, each.schema) for each in letter.watchers)
        try:
            checked = await checker.check(payload, watchers)
        except TimeoutError as error:
            raise CheckTooSlow(id=letter.row.id, limit=f"{self._limit:g}") from error
        except ChildError as error:
            reason = f"the process that applies filters and schemas to it failed: {error}"
            raise StillRefused(id=letter.row.id, reason=reason) from error
        if not checked.passing:
            reasons = list(dict.fromkeys(f"{each.reason} ({each.code})" for each in checked.refusals))
            reason = "; ".join(reasons[:_SHOWN]) or "no watcher's filter (when=) lets the payload pass"
            raise StillRefused(id=letter.row.id, reason=reason)
        return checked
