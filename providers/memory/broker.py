"""A small message broker of ours for tests and examples: ``python -m providers.memory.broker --socket PATH``.

It speaks :mod:`providers.memory.wire` on a Unix socket and keeps its queues in memory: they end with the process.
Requests and their answers (every answer repeats ``ok``; a refusal has ``ok: false`` and ``error``):

======== ===================================================== =====================================
op       request                                               answer
======== ===================================================== =====================================
publish  queue, messages ``[{size, lane?}]``, raw bodies       ids
receive  queue, limit, wait and visibility in seconds          messages ``[{id, size, lane, attempt}]``, raw bodies
ack      queue, ids                                            known
release  queue, ids                                            nothing
extend   queue, ids, visibility                                nothing
stats    queue                                                 visible, in_flight
return   queue: everything in flight becomes visible           nothing
======== ===================================================== =====================================

A queue exists from its first mention. Whatever a connection holds returns when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import os
import signal
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from providers.memory.queues import Queue
from providers.memory.wire import Frame, FrameRefused, read_frame

logger = logging.getLogger("tidegate.memory.broker")

#: Limits of one receive: messages, and seconds of waiting.
RECEIVE_LIMIT = 1000
WAIT_LIMIT = 60.0


class SocketTaken(OSError):
    """Another broker already answers on this socket."""


class _Watched:
    """A queue together with the receives that wait for it."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.waiters: deque[asyncio.Future[None]] = deque()

    def wake(self) -> None:
        """Let every waiting receive look again."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class Broker:
    """Serves connections until cancelled. One instance a socket."""

    def __init__(self) -> None:
        self._queues: dict[str, _Watched] = {}
        self._holders = itertools.count(1)

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it goes; then return what it held."""
        holder = next(self._holders)
        try:
            await self._answer_all(holder, reader=reader, writer=writer)
        except (FrameRefused, asyncio.IncompleteReadError, ConnectionError) as error:
            logger.info("connection %d ended: %s", holder, error)
        finally:
            for watched in self._queues.values():
                watched.queue.release_holder(holder)
                watched.wake()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_all(self, holder: int, *, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests are answered in turn. The next one is read while a receive waits, so that a client's end is seen."""
        following = asyncio.ensure_future(read_frame(reader))
        try:
            while (request := await following) is not None:
                following = asyncio.ensure_future(read_frame(reader))
                answer = await self._answer_unless_gone(request, holder=holder, following=following)
                if answer is None:
                    return
                writer.write(answer.encode())
                await writer.drain()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _answer_unless_gone(
        self, request: Frame, *, holder: int, following: asyncio.Future[Frame | None]
    ) -> Frame | None:
        """The answer, or ``None`` when the client ended (or broke off) while it was awaited."""
        answering = asyncio.ensure_future(self._answer(request, holder=holder))
        try:
            waited: set[asyncio.Future[Any]] = {answering, following}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            return None if following.exception() or following.result() is None else await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, request: Frame, *, holder: int) -> Frame:
        try:
            return await self._perform(request, holder=holder)
        except (KeyError, TypeError, ValueError) as error:
            return Frame(head={"ok": False, "error": f"{type(error).__name__}: {error}"})

    async def _perform(self, request: Frame, *, holder: int) -> Frame:
        head = request.head
        watched = self._watched(str(head["queue"]))
        match head["op"]:
            case "publish":
                return self._publish(watched, request=request)
            case "receive":
                return await self._receive(watched, head=head, holder=holder)
            case "ack":
                known = watched.queue.acknowledge(head["ids"])
                watched.wake()
                return Frame(head={"ok": True, "known": known})
            case "release":
                watched.queue.release(head["ids"], holder=holder)
            case "extend":
                watched.queue.extend(head["ids"], holder=holder, deadline=_now() + float(head["visibility"]))
            case "return":
                watched.queue.release_holder()
            case "stats":
                counts = watched.queue.statistics()
                return Frame(head={"ok": True, "visible": counts.visible, "in_flight": counts.in_flight})
            case unknown:
                raise ValueError(f"unknown op {unknown!r}")
        watched.wake()
        return Frame(head={"ok": True})

    def _watched(self, name: str) -> _Watched:
        if name not in self._queues:
            self._queues[name] = _Watched()
        return self._queues[name]

    @staticmethod
    def _publish(watched: _Watched, *, request: Frame) -> Frame:
        described: list[dict[str, Any]] = request.head["messages"]
        if sum(int(entry["size"]) for entry in described) != len(request.raw):
            raise ValueError("the sizes of the messages do not add up to the raw part")
        offset, ids = 0, []
        for entry in described:
            body = request.raw[offset : offset + int(entry["size"])]
            offset += len(body)
            ids.append(watched.queue.publish(body, lane=entry.get("lane")).id)
        watched.wake()
        return Frame(head={"ok": True, "ids": ids})

    @staticmethod
    async def _receive(watched: _Watched, *, head: dict[str, Any], holder: int) -> Frame:
        limit = min(int(head["limit"]), RECEIVE_LIMIT)
        visibility = float(head["visibility"])
        end = _now() + min(float(head["wait"]), WAIT_LIMIT)
        while True:
            watched.queue.expire(_now())
            taken = watched.queue.receive(limit, holder=holder, deadline=_now() + visibility)
            left = end - _now()
            if taken or left <= 0:
                break
            await _wait_for_change(watched, at_most=left)
        messages = [
            {"id": message.id, "size": len(message.body), "lane": message.lane, "attempt": message.attempts}
            for message in taken
        ]
        return Frame(head={"ok": True, "messages": messages}, raw=b"".join(message.body for message in taken))


async def _wait_for_change(watched: _Watched, *, at_most: float) -> None:
    """Until something is published, returned or acknowledged, a message in flight falls due, or time is over."""
    due = watched.queue.next_deadline()
    pause = at_most if due is None else max(0.0, min(at_most, due - _now()))
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watched.waiters.append(waiter)
    try:
        async with asyncio.timeout(pause):
            await waiter
    except TimeoutError:
        pass
    finally:
        with suppress(ValueError):
            watched.waiters.remove(waiter)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def listen(path: Path) -> asyncio.Server:
    """Listen on ``path`` (mode 0600). A socket left behind by a dead broker is replaced.

    Raises :class:`SocketTaken` if a live one answers there, ``OSError`` if the path cannot be a socket (Unix allows
    about 100 bytes).
    """
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except FileNotFoundError:
        pass
    except OSError:
        _remove_socket(path)
    else:
        writer.close()
        await writer.wait_closed()
        raise SocketTaken(f"another memory broker answers on {path}")
    previous = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(Broker().serve_connection, path)
    finally:
        os.umask(previous)


def _remove_socket(path: Path) -> None:
    """Remove ``path`` if it is a socket; anything else stays, and listening there fails with the reason."""
    if path.is_socket():
        path.unlink(missing_ok=True)


async def _serve(path: Path, *, until_stdin_closes: bool) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if until_stdin_closes:
        await loop.connect_read_pipe(lambda: _EndOfInput(ended), sys.stdin)
    server = await listen(path)
    sys.stdout.write(f"memory broker on {path}\n")
    sys.stdout.flush()
    try:
        await ended.wait()
    finally:
        server.close()
        _remove_socket(path)


class _EndOfInput(asyncio.Protocol):
    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until SIGTERM, SIGINT or (if asked for) the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m providers.memory.broker", description="An in-memory broker.")
    parser.add_argument("--socket", required=True, type=Path, help="path of the Unix socket to listen on")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when standard input ends")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_serve(options.socket, until_stdin_closes=options.until_stdin_closes))
    except OSError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
