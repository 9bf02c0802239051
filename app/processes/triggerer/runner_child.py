"""The runner: a process that runs triggers, filters and nothing else.

``python -P -m app.processes.triggerer.runner_child SOCKET SLOT STACK`` with three inherited descriptors: the socket to
the triggerer, the shared memory of :mod:`app.processes.triggerer.slot`, and a pipe into which a traceback is written
whenever the triggerer sends SIGUSR2. The traceback is written by a C signal handler, so it comes also while Python code
cannot run. There is no database here.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, assert_never

import uvloop

from app.kernel.children import die_with_parent
from app.kernel.frames import FrameStream, PeerGone
from app.processes.triggerer.aging import Aging
from app.processes.triggerer.messages import (
    Configure,
    Ended,
    FromParent,
    Lease,
    Ready,
    Resolved,
    Rewatch,
    SourceLag,
    SourceState,
    Start,
    Stop,
    Throttled,
    Warm,
    Yielded,
)
from app.processes.triggerer.resident import resident_bytes
from app.processes.triggerer.runner_child_attribution import Attribution
from app.processes.triggerer.runner_child_hosting import Hosted
from app.processes.triggerer.runner_child_logs import Masker, Outbox, install
from app.processes.triggerer.runner_child_warming import import_ahead
from app.processes.triggerer.slot import Slot
from watchers.triggers import BaseTrigger

STACK_SIGNAL = signal.SIGUSR2
_FRAMES_AT_ONCE = 20


class BundleBroken(Exception):
    """The code of a trigger cannot be loaded."""


class RunnerChild:
    """Hosts triggers until the parent is gone, or is without a lease for too long."""

    def __init__(self, stream: FrameStream, settings: Configure, attribution: Attribution) -> None:
        self.settings = settings
        self.attribution = attribution
        self.kinds: dict[str, type[BaseTrigger]] = {}
        self.maskers: dict[int, Masker] = {}
        self._stream = stream
        self._outbox = Outbox(stream, asyncio.get_running_loop())
        self._hosted: dict[int, Hosted] = {}
        self._aging = Aging()
        self._loaded: set[str] = set()
        self._sequence = 0
        self._warming: set[asyncio.Task[None]] = set()
        self._lease_until = time.monotonic() + settings.lease_seconds

    async def run(self) -> None:
        """Serve; every trigger is closed before this returns."""
        install(self._outbox, self.maskers)
        sending = asyncio.create_task(self._outbox.send_for_ever())
        watching = asyncio.create_task(self._watch_lease())
        try:
            await self.send(
                Ready(
                    pid=os.getpid(),
                    thread=f"0x{threading.get_ident():016x}",
                    rss_bytes=resident_bytes(os.getpid()),
                )
            )
            received = 0
            async for frame in self._stream:
                self._handle(frame)
                received += 1
                if received % _FRAMES_AT_ONCE == 0:
                    # Those that have come already would all be taken before anything else has its turn.
                    await asyncio.sleep(0)
        except PeerGone:
            pass
        finally:
            await self._abandon_all()
            watching.cancel()
            sending.cancel()
            await asyncio.gather(watching, sending, return_exceptions=True)

    async def send(self, frame: Ready | Yielded | Ended) -> None:
        try:
            await self._stream.send(frame)
        except PeerGone:
            return  # The reading side of this process ends the same way and closes everything.

    def tell(self, frame: SourceState | SourceLag | Throttled | Ended) -> None:
        self._outbox.put(frame)

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def load(self, entry: str) -> None:
        if entry in self._loaded:
            return
        from app.sdk.loader import load_pipeline

        assert self.settings.bundle_root is not None
        loaded = load_pipeline(Path(self.settings.bundle_root), entry)
        if loaded.error is not None:
            where = f"{loaded.error.file}:{loaded.error.line}" if loaded.error.line else loaded.error.file
            raise BundleBroken(f"{where}: {loaded.error.message}")
        self._loaded.add(entry)

    def _handle(self, frame: Any) -> None:
        received: FromParent = frame
        match received:
            case Start():
                self._hosted[received.trigger_id] = Hosted(received, self, on_closed=self._closed)
                self._aging.came()
            case Lease():
                self._lease_until = time.monotonic() + self.settings.lease_seconds
            case Configure():
                self.settings = received
            case Resolved() | Stop() | Rewatch():
                hosted = self._hosted.get(received.trigger_id)
                if hosted is not None:
                    hosted.handle(received)
            case Warm():
                warming = asyncio.create_task(asyncio.to_thread(import_ahead, received.classpaths), name="warming")
                self._warming.add(warming)
                warming.add_done_callback(self._warming.discard)
            case _:
                assert_never(received)

    def _closed(self, hosted: Hosted) -> None:
        if self._hosted.get(hosted.trigger_id) is hosted:
            del self._hosted[hosted.trigger_id]
            self._aging.went()
            self.maskers.pop(hosted.trigger_id, None)
            self.attribution.forget(hosted.trigger_id)

    async def _watch_lease(self) -> None:
        """Without a renewed lease for one period, close every generator at its yield and leave."""
        while (left := self._lease_until - time.monotonic()) > 0:  # noqa: ASYNC110 — the limit moves while we wait
            await asyncio.sleep(left)
        await self._abandon_all()
        await self._stream.aclose()

    async def _abandon_all(self) -> None:
        tasks = []
        for hosted in list(self._hosted.values()):
            hosted.abandon()
            tasks.append(hosted.task)
        if tasks:
            await asyncio.wait(tasks, timeout=self.settings.stop_seconds)


async def serve(descriptor: int, slot: Slot) -> None:
    """Run a runner over the socket ``descriptor``."""
    attribution = Attribution(slot)
    attribution.install(asyncio.get_running_loop())
    stream = await FrameStream.over(socket.socket(fileno=descriptor), FromParent)
    try:
        first = await stream.receive()
    except PeerGone:
        return
    if not isinstance(first, Configure):
        raise TypeError(f"the first frame is {type(first).__name__}, not Configure")
    if first.bundle_root is not None and first.bundle_root not in sys.path:
        sys.path.append(first.bundle_root)
    await RunnerChild(stream, first, attribution).run()


def main(arguments: list[str]) -> None:
    """Entry point of the process."""
    die_with_parent()
    descriptor, slot, stack = (int(argument) for argument in arguments)
    # The triggerer decides when a runner ends; a signal meant for the whole group must not lose what is in hand.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.register(STACK_SIGNAL, file=stack, all_threads=True)
    uvloop.run(serve(descriptor, Slot(slot)))
    # Threads and exit handlers of user code must not keep a closed runner alive.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
