"""A runner as its parent sees it: a child process, its frames, its output, its shared memory, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from app.kernel.children import python_command, scrubbed_environment
from app.kernel.frames import FrameError, FrameStream, PeerGone
from app.processes.triggerer.messages import Configure, FromRunner, Ready
from app.processes.triggerer.slot import Sample, Slot
from app.processes.triggerer.watchdog import BlockWatch, section_of

MODULE = "app.processes.triggerer.runner_child"
#: From asking a runner to end (its socket is closed) to killing it, in seconds.
END_SECONDS = 8.0
#: Longest that pipes of an ended runner may stay open in processes it left behind, in seconds.
_DRAIN_SECONDS = 0.5
_STACK_SECONDS = 1.0
#: Raw output of a runner that is taken, in bytes a second.
_OUTPUT_A_SECOND = 4 * 1024 * 1024
#: Frames that wait already are taken before others have their turn.
_FRAMES_AT_ONCE = 50
#: A line of raw output that is longer, in bytes, is passed on in parts.
_LONGEST_LINE = 65_536


class RunnerKind(StrEnum):
    """Whose triggers a runner runs."""

    INSTALLED = "installed"  #: Triggers whose class is installed.
    BUNDLE = "bundle"  #: Triggers of one version of pipeline code.
    ALONE = "alone"  #: One trigger that blocked or killed a runner before.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKey:
    """``bundle`` is the digest of custom code; ``trigger_id`` the one trigger of a runner of kind alone."""

    kind: RunnerKind
    bundle: str | None = None
    trigger_id: int | None = None

    def __str__(self) -> str:
        return "-".join(str(part) for part in (self.kind.value, self.trigger_id, (self.bundle or "")[:12]) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEnd:
    """How a runner ended. ``sample`` is what it was doing; ``blamed`` the trigger for which we killed it."""

    returncode: int | None
    sample: Sample
    was_ready: bool
    lasted: float
    expected: bool
    blamed: int | None = None
    error: str | None = None

    @property
    def cause(self) -> str:
        """Of what it ended, for people."""
        if self.error is not None:
            return self.error
        if self.returncode is not None and self.returncode < 0:
            return f"signal {signal.Signals(-self.returncode).name}"
        return f"exit code {self.returncode}"


class RunnerProcess:
    """Runs once. ``prepare`` gives the first frame, e.g. after laying out the code; what it raises ends the runner."""

    def __init__(
        self,
        key: RunnerKey,
        *,
        prepare: Callable[[], Awaitable[Configure]],
        environment: Mapping[str, str],
        block_warning: float,
        on_frame: Callable[[RunnerProcess, Any], None],
        on_output: Callable[[RunnerProcess, bytes], None],
    ) -> None:
        self.key = key
        self.watch = BlockWatch(warning=block_warning)
        self.is_ready = False
        self.is_over = False
        self.blamed: int | None = None
        self._prepare = prepare
        self._environment = dict(environment)
        self._on_frame = on_frame
        self._on_output = on_output
        self._outgoing: asyncio.Queue[msgspec.Struct] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None
        self._slot: Slot | None = None
        self._stream: FrameStream | None = None
        self._stack: asyncio.StreamReader | None = None
        self._thread = "0x"
        self._expected = False
        self._broken: str | None = None
        self._last = Sample(0, 0, 0)

    @property
    def pid(self) -> int | None:
        """Process id once started."""
        return None if self._process is None else self._process.pid

    def send(self, frame: msgspec.Struct) -> None:
        """Queue a frame; dropped if the runner is over."""
        if not self.is_over:
            self._outgoing.put_nowait(frame)

    def sample(self) -> Sample:
        """What the runner says it is doing now."""
        return self._last if self._slot is None else self._slot.sample()

    def kill(self, *, blame: int | None = None) -> None:
        """End it at once."""
        self.blamed = blame or self.blamed
        self.is_over = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """Let it close its triggers and end; killed if that takes too long. :meth:`run` returns afterwards."""
        self._expected = True
        self.is_over = True
        if self._stream is not None:
            await self._stream.aclose()
        if self._process is not None:
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self.kill()

    async def stack(self) -> str:
        """Where its main thread is now: a traceback, most recent call first; empty if it does not answer."""
        if self._process is None or self._stack is None or self._process.returncode is not None:
            return ""
        self._process.send_signal(signal.SIGUSR2)
        text = b""
        try:
            async with asyncio.timeout(_STACK_SECONDS):
                text = await self._stack.read(65_536)
                # The handler writes line by line; what follows is there within the same breath.
                while more := await asyncio.wait_for(self._stack.read(65_536), 0.05):
                    text += more
        except TimeoutError:
            pass
        return section_of(text.decode(errors="replace"), self._thread)

    async def run(self) -> RunnerEnd:
        """Start the process and serve it until it ends."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        error: str | None = None
        try:
            configure = await self._prepare()
            if not self._expected:
                await self._serve(configure)
        except Exception as failure:  # noqa: BLE001 — code that cannot be laid out: told to the triggers that need it
            error = f"{type(failure).__name__}: {failure}"
        finally:
            self.is_over = True
            await self._let_go()
        return RunnerEnd(
            returncode=None if self._process is None else self._process.returncode,
            sample=self._last,
            was_ready=self.is_ready,
            lasted=loop.time() - started,
            expected=self._expected,
            blamed=self.blamed,
            error=self._broken or error,
        )

    async def _serve(self, configure: Configure) -> None:
        ours, theirs = socket.socketpair()
        self._slot, slot_end = Slot.create()
        out, out_end = os.pipe()
        stack, stack_end = os.pipe()
        ends = (theirs.fileno(), slot_end, stack_end)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *python_command(MODULE, *(str(end) for end in ends)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out_end,
                stderr=out_end,
                pass_fds=ends,
                env=scrubbed_environment(self._environment),
            )
        finally:
            theirs.close()
            for descriptor in (slot_end, out_end, stack_end):
                os.close(descriptor)
        self._stream = await FrameStream.over(ours, FromRunner)
        async with _reading(out) as output, _reading(stack) as self._stack:
            await self._exchange(configure, output)

    async def _exchange(self, configure: Configure, output: asyncio.StreamReader) -> None:
        assert self._process is not None
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._receive()),
                group.create_task(self._send(configure)),
                group.create_task(self._drain(output)),
            ]
            await self._process.wait()
            assert self._slot is not None
            self._last = self._slot.sample()
            self.is_over = True
            tasks[1].cancel()
            # Frames and output sent before the end are still there to read.
            await asyncio.wait((tasks[0], tasks[2]), timeout=_DRAIN_SECONDS)
            for task in tasks:
                task.cancel()

    async def _receive(self) -> None:
        assert self._stream is not None
        received = 0
        try:
            async for frame in self._stream:
                received += 1
                if received % _FRAMES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if isinstance(frame, Ready):
                    self.is_ready, self._thread = True, frame.thread
                self._on_frame(self, frame)
        except FrameError as error:
            self._broken = f"it broke the protocol: {error}"
            self.kill()

    async def _send(self, configure: Configure) -> None:
        assert self._stream is not None
        try:
            await self._stream.send(configure)
            while True:
                await self._stream.send(await self._outgoing.get())
        except PeerGone:
            return

    async def _drain(self, output: asyncio.StreamReader) -> None:
        """Pass on whole lines: what has to be masked in them must not come in two parts."""
        rest = b""
        try:
            while data := await output.read(65_536):
                lines, _, rest = (rest + data).rpartition(b"\n")
                if len(rest) > _LONGEST_LINE:
                    lines, rest = lines + b"\n" + rest, b""
                if lines:
                    self._on_output(self, lines)
                # A flood waits in the pipe, and its trigger with it: no other is to be slowed down by it.
                await asyncio.sleep(len(data) / _OUTPUT_A_SECOND)
        finally:
            if rest:
                self._on_output(self, rest)

    async def _let_go(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._stream is not None:
            await self._stream.aclose()
        if self._slot is not None:
            self._slot.close()
            self._slot = None


@asynccontextmanager
async def _reading(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """The reading end of a pipe as a stream; closed on exit."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=65_536)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        yield reader
    finally:
        transport.close()
