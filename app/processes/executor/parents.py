"""The executor's side of warm parents: start one per version of a pipeline file, fork attempts, evict the idle."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from app.kernel.children import python_command, scrubbed_environment
from app.kernel.telemetry import get_logger
from app.processes.executor import messages

_log = get_logger("executor")

#: Longest that a warm parent may take to end by itself once it is asked to, in seconds.
END_LIMIT = 1.0


class ParentGone(Exception):
    """The warm parent ended, or never came up; the message says why."""


class PipelineUnusable(Exception):
    """The stored version of the pipeline file cannot be imported here; the message is the located error."""


@dataclass(slots=True, kw_only=True)
class TaskProcess:
    """One attempt's process. ``exited`` resolves to its status (negative for a signal)."""

    pid: int
    exited: asyncio.Future[int]

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and all it started; harmless once they are gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@dataclass(slots=True)
class _Slot:
    forked: asyncio.Future[int]
    exited: asyncio.Future[int]


@dataclass(slots=True, kw_only=True)
class WarmParent:
    """A warm parent process: one version of one pipeline file, imported."""

    root: Path
    entry: str
    process: asyncio.subprocess.Process
    control: socket.socket
    ready: asyncio.Future[messages.Ready]
    output: IO[bytes]
    used_at: float = field(default_factory=time.monotonic)
    _overdue: asyncio.TimerHandle | None = None
    _slots: dict[int, _Slot] = field(default_factory=dict)
    _next_slot: int = 0

    @classmethod
    async def start(cls, *, root: Path, entry: str, output: Path, import_limit: float) -> WarmParent:
        """Start the process; :meth:`fork` waits for its import, which may take ``import_limit`` seconds.

        Its own output goes to the file ``output``.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        output.parent.mkdir(parents=True, exist_ok=True)
        with theirs:
            stream = output.open("ab")
            process = await asyncio.create_subprocess_exec(
                *python_command("app.processes.executor.warm_parent"),
                *("--control", str(theirs.fileno()), "--root", str(root), "--entry", entry),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=scrubbed_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        parent = cls(root=root, entry=entry, process=process, control=ours, ready=loop.create_future(), output=stream)
        loop.add_reader(ours.fileno(), parent._read)
        parent._overdue = loop.call_later(import_limit, parent._give_up, import_limit)
        return parent

    @property
    def busy(self) -> bool:
        """Whether attempts of it are still running."""
        return bool(self._slots)

    @property
    def gone(self) -> bool:
        """Whether the process has ended or can no longer be spoken to."""
        return self.control.fileno() < 0

    async def wait_ready(self) -> messages.Ready:
        """Wait for the import; raises :class:`ParentGone` or :class:`PipelineUnusable`."""
        self.used_at = time.monotonic()
        return await asyncio.shield(self.ready)

    async def fork(self, end: socket.socket) -> TaskProcess:
        """Start an attempt that speaks over ``end``; raises :class:`ParentGone` or :class:`PipelineUnusable`."""
        ready = await self.wait_ready()
        if ready.unforkable is not None:
            return await self._spawn(end)
        if self.gone:
            raise ParentGone("the warm parent ended")
        loop = asyncio.get_running_loop()
        slot = _Slot(loop.create_future(), loop.create_future())
        self._next_slot += 1
        self._slots[self._next_slot] = slot
        request = msgspec.msgpack.encode(messages.Fork(slot=self._next_slot))
        try:
            while True:
                try:
                    socket.send_fds(self.control, [request], [end.fileno()])
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)  # the packet queue of the pair is full: a burst of forks
        except OSError as error:
            self._lose(f"the warm parent cannot be reached: {error}")
            raise ParentGone(str(error)) from error
        return TaskProcess(pid=await slot.forked, exited=slot.exited)

    async def _spawn(self, end: socket.socket) -> TaskProcess:
        process = await asyncio.create_subprocess_exec(
            *python_command("app.processes.executor.attempt_child"),
            *("--socket", str(end.fileno()), "--root", str(self.root), "--entry", self.entry),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            env=scrubbed_environment(),
            pass_fds=(end.fileno(),),
            start_new_session=True,
        )
        return TaskProcess(pid=process.pid, exited=asyncio.ensure_future(process.wait()))

    def _read(self) -> None:
        while True:
            try:
                data = self.control.recv(messages.MAX_PACKET)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose("the warm parent ended")
                return
            try:
                self._take(msgspec.msgpack.decode(data, type=messages.FromWarmParent))
            except (msgspec.MsgspecError, KeyError, asyncio.InvalidStateError) as error:
                # The author's code has run in that process, and may have written anything.
                self._lose(f"the warm parent sent something that is no message, or out of turn: {error!r}")
                return

    def _take(self, message: Any) -> None:
        match message:
            case messages.Ready():
                if message.unforkable:
                    _log.warning("attempts are started afresh", action="unforkable", reason=message.unforkable)
                if not self.ready.done():
                    self.ready.set_result(message)
            case messages.ImportFailed(error=error):
                self._fail_ready(PipelineUnusable(error))
            case messages.Forked(slot=number, pid=pid):
                self._slots[number].forked.set_result(pid)
            case messages.ForkFailed(slot=number, error=error):
                slot = self._slots.pop(number)
                slot.forked.set_exception(ParentGone(f"no process for the attempt: {error}"))
            case messages.Exited(slot=number, status=status):
                self._slots.pop(number).exited.set_result(status)

    def _give_up(self, limit: float) -> None:
        if not self.ready.done():
            self._fail_ready(PipelineUnusable(f"the import of {self.entry} took longer than {limit:g} s"))
            self._lose("its import took too long")
            with suppress(ProcessLookupError):
                self.process.kill()

    def _fail_ready(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # retrieved here: perhaps nobody waits for it

    def _lose(self, reason: str) -> None:
        if self.gone:
            return
        if self._overdue is not None:
            self._overdue.cancel()
        asyncio.get_running_loop().remove_reader(self.control.fileno())
        self.control.close()
        self._fail_ready(ParentGone(reason))
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            if not slot.forked.done():
                slot.forked.set_exception(ParentGone(reason))
                slot.forked.exception()
            if not slot.exited.done():
                # Its attempts die with it (parent-death signal): lost like any killed process.
                slot.exited.set_result(-signal.SIGKILL)

    async def stop(self) -> None:
        """End the process (and, with it, attempts that still run)."""
        serves = self.ready.done()
        self._lose("the executor stopped it")
        if serves:
            # It ends as its control socket closes, and sees to it that the process forked ahead is gone before.
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), END_LIMIT)
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self.output.close()


class WarmParents:
    """The warm parents of one executor, by bundle and entry, at most ``limit`` of them.

    Those of :meth:`keep` stay however long they are idle; the others end some time after their last use.
    """

    def __init__(self, *, logs: Path, limit: int, idle_seconds: float, import_limit: float) -> None:
        self._logs = logs
        self._import_limit = import_limit
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._parents: dict[tuple[str, str], WarmParent] = {}
        self._kept: frozenset[tuple[str, str]] = frozenset()
        self._starting = asyncio.Lock()
        self._stopped = False

    def known(self, *, digest: str, entry: str) -> WarmParent | None:
        """The warm parent of a version if it is there."""
        parent = self._parents.get((digest, entry))
        if parent is None or parent.gone:
            return None
        parent.used_at = time.monotonic()
        return parent

    async def parent(self, *, digest: str, root: Path, entry: str) -> WarmParent:
        """The warm parent of a version, started if need be. Raises :class:`ParentGone` once they have been stopped."""
        async with self._starting:
            if self._stopped:
                raise ParentGone("the executor stops")
            parent = self._parents.get((digest, entry))
            if parent is not None and parent.gone:
                await self._drop((digest, entry))
                parent = None
            if parent is None:
                output = self._logs / "warm-parents" / f"{digest[:16]}.log"
                parent = await WarmParent.start(root=root, entry=entry, output=output, import_limit=self._import_limit)
                self._parents[digest, entry] = parent
                await self._evict()
            parent.used_at = time.monotonic()
            return parent

    def keep(self, current: Collection[tuple[str, str]]) -> None:
        """Say which code, by digest and entry, may be asked for at any moment."""
        self._kept = frozenset(current)

    async def evict_idle(self) -> None:
        """End parents that nobody used for a while."""
        async with self._starting:
            await self._evict()

    async def _evict(self) -> None:
        now = time.monotonic()
        idle = sorted(
            (key in self._kept, parent.used_at, key)
            for key, parent in self._parents.items()
            # One that is still importing, or was handed out a moment ago, is about to be used.
            if not parent.busy and parent.ready.done() and now - parent.used_at > 1
        )
        over = len(self._parents) - self._limit
        for kept, used_at, key in idle:
            if over > 0 or (not kept and now - used_at > self._idle_seconds):
                await self._drop(key)
                over -= 1

    async def _drop(self, key: tuple[str, str]) -> None:
        parent = self._parents.pop(key)
        await parent.stop()

    async def stop(self) -> None:
        """End all parents, and start no more."""
        async with self._starting:
            self._stopped = True
            for key in list(self._parents):
                await self._drop(key)
