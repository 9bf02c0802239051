"""Loading a pipeline file in a child of its own, which may crash, hang, print and fork without harm to anyone else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from app.domain.specs import LoadResult, LocatedError
from app.kernel.children import python_command, scrubbed_environment
from app.kernel.frames import FrameError, FrameStream, PeerGone
from app.processes.dag_processor.messages import Load, Loaded, Ready, ToParent

Frame = TypeVar("Frame", Ready, Loaded)
CHILD = "app.processes.dag_processor.loader_child"
#: How much of what a child printed is kept to explain its end, in bytes.
PRINTED_LIMIT = 16 * 1024
#: Where in the time limit a child that still runs says where it stands.
_PATIENCE = 0.9
#: How long a child may take until it is ready for its order, in seconds; a busy machine is no fault of the file.
_START_LIMIT = 60.0
#: How long a child that closed its socket may take to end, in seconds.
_END_LIMIT = 1.0
#: Reads of output before others have their turn.
_READS_AT_ONCE = 16


async def load_in_child(root: str, file: str, *, limit: float, max_kwargs_bytes: int = 65_536) -> LoadResult:
    """What a fresh child says about a pipeline file; whatever goes wrong there becomes the result's ``error``.

    The child and what it started in its process group is gone when this returns. ``limit`` is in seconds.
    """
    started = time.perf_counter()
    order = Load(root=root, file=file, patience=limit * _PATIENCE, max_kwargs_bytes=max_kwargs_bytes)
    ours, theirs = socket.socketpair()
    stream = await FrameStream.over(ours, ToParent)
    try:
        with _Output() as output:
            try:
                child = await _start(theirs, output.descriptor)
            finally:
                theirs.close()
                output.hand_over()
            async with _ended(child):
                result = await _answer(stream, order, limit=limit)
                if isinstance(result, LoadResult):
                    return result
                # Only a child that closed its socket tells its own status; any other is about to be killed.
                reason = await _end_of(child) if result is None else result
            text = output.text()
    finally:
        await stream.aclose()
    return LoadResult(
        file=file,
        modules=(file,),
        error=LocatedError(file=file, message=reason, traceback=f"{reason}\n{text}" if text else None),
        duration=time.perf_counter() - started,
    )


async def _start(theirs: socket.socket, output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *python_command(CHILD, str(theirs.fileno())),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=scrubbed_environment(),
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
    )


async def _answer(stream: FrameStream, order: Load, *, limit: float) -> LoadResult | str | None:
    """The result, a sentence saying why there is none, or None if the child went away without a word."""
    overdue = f"did not start within {_START_LIMIT:g} s"
    try:
        async with asyncio.timeout(_START_LIMIT):
            await _expect(stream, Ready)
        overdue = f"was given up: the file took longer than {limit:g} s to load (setting dag_parse_timeout)"
        async with asyncio.timeout(limit):
            await stream.send(order)
            answer = await _expect(stream, Loaded)
    except TimeoutError:
        return f"the process that loads the file {overdue}"
    except PeerGone:
        return None
    except FrameError as error:
        return f"the process that loads the file sent something unreadable: {error}"
    if answer.result.file != order.file:
        return f"the process that loads the file answered for another one ({answer.result.file!r})"
    return answer.result


async def _expect(stream: FrameStream, kind: type[Frame]) -> Frame:
    frame = await stream.receive()
    if not isinstance(frame, kind):
        raise FrameError(f"{type(frame).__name__} instead of {kind.__name__}")
    return frame


async def _end_of(child: asyncio.subprocess.Process) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_LIMIT):
            status = await child.wait()
            if status < 0:
                name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
                return f"the process that loads the file was ended by {name} while importing it"
            return f"the process that loads the file ended with status {status} while importing it"
    return "the process that loads the file closed its connection while importing it"


@asynccontextmanager
async def _ended(child: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """Kill the child's process group at the end, whatever happened, and take its status."""
    try:
        yield
    finally:
        # The group outlives its leader while the author's own children run; both end here.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        await asyncio.shield(child.wait())


class _Output:
    """The last bytes of what the child prints, read as they come so that the child never waits for us."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._tail = bytearray()

    def __enter__(self) -> _Output:
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        self.hand_over()
        os.close(self._reading)

    @property
    def descriptor(self) -> int:
        """What the child writes to."""
        return self._writing

    def hand_over(self) -> None:
        """Close our copy of the writing end, once the child has its own."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def text(self) -> str:
        """What is there by now, however the bytes read."""
        self._read()
        return bytes(self._tail).decode(errors="replace")

    def _read(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(_READS_AT_ONCE):
                part = os.read(self._reading, 1 << 16)
                if not part:
                    asyncio.get_running_loop().remove_reader(self._reading)
                    return
                self._tail.extend(part)
                del self._tail[:-PRINTED_LIMIT]
