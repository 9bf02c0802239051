"""One attempt, from the executor's side: start its process, serve its requests, see it end, whatever way it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from app.domain.orders import AttemptOrder, Failed, Outcome
from app.kernel.frames import FrameError, FrameStream, PeerGone
from app.kernel.telemetry import get_logger
from app.processes.executor import messages
from app.processes.executor.parents import ParentGone, PipelineUnusable, TaskProcess, WarmParent

_log = get_logger("executor")

#: An attempt raises its own time-out; the executor steps in this much later, in seconds.
TIMEOUT_MARGIN = 1.0
#: From the report of an outcome to the exit of the process, in seconds; then it is killed (its outcome stands).
EXIT_GRACE = 10.0


class AttemptRequests(Protocol):
    """What the executor answers to a running attempt. Each call is one transaction."""

    async def pull(self, order: AttemptOrder, request: messages.PullXCom) -> list[tuple[str, str]]:
        """XComs of the attempt's run."""

    async def inlet_events(self, order: AttemptOrder, request: messages.ListInletEvents) -> list[Any]:
        """Events of an inlet asset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The process ended without an outcome: killed, crashed, or never started."""

    reason: str


class Attempt:
    """Supervises the process of one attempt."""

    def __init__(self, order: AttemptOrder, *, requests: AttemptRequests, kill_grace: float) -> None:
        self.order = order
        self.process: TaskProcess | None = None
        #: Whether the process told its outcome itself; then its log says all.
        self.has_reported = False
        self._requests = requests
        self._kill_grace = kill_grace

    async def run(self, parent: WarmParent, may_start: Callable[[], Awaitable[bool]]) -> Outcome | Lost | None:
        """Fork, start once ``may_start`` (the record of it) allows, and follow the attempt to its end.

        ``None`` if it was not allowed to start. Raises :class:`PipelineUnusable`, and :class:`ParentGone` before
        anything was recorded: a try begins once its code is there.
        """
        await parent.wait_ready()
        ours, theirs = socket.socketpair()
        with theirs:
            allowed = asyncio.ensure_future(may_start())
            try:
                self.process = await parent.fork(theirs)
            except ParentGone as error:
                ours.close()
                return Lost(reason=str(error)) if await allowed else None
            except (PipelineUnusable, asyncio.CancelledError):
                ours.close()
                await asyncio.wait([allowed])
                raise
        frames = await FrameStream.over(ours, messages.FromAttempt)
        try:
            if not await allowed:
                return None
            return await self._follow(frames, self.process)
        finally:
            await frames.aclose()
            if not self.process.exited.done():
                await self._end(self.process)

    async def _follow(self, frames: FrameStream, process: TaskProcess) -> Outcome | Lost:
        limit = self.order.execution_timeout
        try:
            with suppress(PeerGone):  # an attempt that died before its order: its exit status tells the story
                await frames.send(messages.Order(order=self.order), limit=messages.MAX_TO_ATTEMPT)
        except FrameError as error:
            return Failed(error=f"the events and values for this attempt are too large: {error}", retry=False)
        try:
            async with asyncio.timeout(None if limit is None else limit + TIMEOUT_MARGIN):
                outcome = await self._serve(frames)
                if outcome is None:
                    status = await asyncio.shield(process.exited)
                    process.signal(signal.SIGKILL)  # what it left running must not meet the next try
                    return Lost(reason=_describe_exit(status))
        except TimeoutError:
            await self._end(process)
            return Failed(error=f"execution_timeout of {limit:g} s exceeded; the process was ended")
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.exited), EXIT_GRACE)
            # What the task left running in its process group ends with it; a daemon has a session of its own.
            process.signal(signal.SIGKILL)
        return outcome

    async def _serve(self, frames: FrameStream) -> Outcome | None:
        """Answer requests until the outcome; ``None`` if the process went away without one."""
        while True:
            try:
                frame = await frames.receive()
            except PeerGone:
                return None
            except FrameError as error:
                return Failed(error=f"the task process sent what it must not: {error}")
            if isinstance(frame, messages.Finished):
                self.has_reported = True
                return frame.outcome
            try:
                await self._reply(frames, await self._answer(frame))
            except PeerGone:
                return None

    @staticmethod
    async def _reply(frames: FrameStream, reply: messages.Reply) -> None:
        try:
            await frames.send(reply, limit=messages.MAX_TO_ATTEMPT)
        except PeerGone:
            raise
        except FrameError as error:  # told to the task, which may ask for less
            await frames.send(messages.Reply(error=f"the answer is too large: {error}"))

    async def _answer(self, request: messages.Request) -> messages.Reply:
        value: Any
        try:
            match request:
                case messages.PullXCom():
                    value = await self._requests.pull(self.order, request)
                case messages.ListInletEvents():
                    value = await self._requests.inlet_events(self.order, request)
        except Exception as error:  # noqa: BLE001 - told to the task, which may go on without
            _log.warning("a task's request failed", action="request_failed", task_id=self.order.task_id, exc_info=True)
            return messages.Reply(error=f"{type(error).__name__}: {error}")
        return messages.Reply(value=msgspec.to_builtins(value))

    async def terminate(self, grace: float) -> None:
        """End the process from outside (its executor stops); the attempt then counts as lost."""
        if self.process is not None and not self.process.exited.done():
            await self._end(self.process, grace=grace)

    async def _end(self, process: TaskProcess, *, grace: float | None = None) -> None:
        """SIGTERM, then SIGKILL after the grace period; returns once it is gone."""
        process.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(asyncio.shield(process.exited), self._kill_grace if grace is None else grace)
        except TimeoutError:
            process.signal(signal.SIGKILL)
            await process.exited
        # What the task left running in its process group ends with it.
        process.signal(signal.SIGKILL)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"the task process ended with status {status} before it reported an outcome"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"the task process was ended by {name} before it reported an outcome"
