"""Proxies that stand between a client and a real service, to break the connection in every way a network does.

:class:`Proxy` carries bytes (TCP or Unix sockets). :class:`HttpProxy` reads HTTP/1.1 requests, so that a rule may
answer in the service's place, or change a request or an answer.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

#: Set while a connection may speak: each keeps that of the time it was made, so that some can be lost for ever.
_VOICE: ContextVar[asyncio.Event] = ContextVar("voice")
#: A TCP address (host, port) or the path of a Unix socket.
Address = tuple[str, int] | Path
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Mode(Enum):
    """What the proxy does with connections, those there are and those that come."""

    PASS = "pass"
    #: Nothing listens: connections are refused, those there are end.
    REFUSE = "refuse"
    #: Connections are accepted and reset at once, those there are as well.
    RESET = "reset"
    #: Connections are accepted and stay open, but nothing is carried any more.
    MUTE = "mute"


class Proxy:
    """Listens on ``listen`` (default: a free port of the loopback) and carries bytes to ``upstream`` and back.

    ``address`` is fixed from :meth:`start` to :meth:`stop`, also over :attr:`Mode.REFUSE`. ``upstream`` may be set
    after the start, for a service that must be told its own address.
    """

    def __init__(self, upstream: Address | None = None, *, listen: Address = ("127.0.0.1", 0)) -> None:
        self.upstream = upstream
        self.address = listen
        self.mode = Mode.PASS
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._speaking = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The TCP port."""
        assert isinstance(self.address, tuple)
        return self.address[1]

    async def start(self) -> None:
        """Listen, passing everything."""
        self._speaking.set()
        await self._listen()

    async def stop(self) -> None:
        """End everything."""
        await self._stop_listening()
        await self._end_connections()

    async def set_mode(self, mode: Mode) -> None:
        """Change to ``mode``; connections made under another one do not survive, except into MUTE."""
        if mode is self.mode:
            return
        self.mode = mode
        if mode is Mode.MUTE:
            self._speaking.clear()
        else:
            await self._end_connections(reset=mode is Mode.RESET)
            self._speaking.set()
        if mode is Mode.REFUSE:
            await self._stop_listening()
        elif self._server is None:
            await self._listen()

    async def end_black_hole(self) -> None:
        """Pass again, but only what connects from now on: what there is stays open and mute for ever, as after a
        network that swallowed its packets."""
        assert self.mode is Mode.MUTE
        self.mode = Mode.PASS
        self._speaking = asyncio.Event()
        self._speaking.set()

    async def drop_connections(self) -> None:
        """End every connection there is; new ones are served by the present mode."""
        await self._end_connections()

    async def _listen(self) -> None:
        if isinstance(self.address, Path):
            self._server = await asyncio.start_unix_server(self._accept, self.address)
            return
        host, port = self.address
        while True:
            try:
                self._server = await asyncio.start_server(self._accept, host, port)
                break
            except OSError as error:
                # A client that was refused may have been given this very port for its own end: it soon lets go.
                if error.errno != errno.EADDRINUSE or port == 0:
                    raise
                await asyncio.sleep(0.05)
        self.address = (host, self._server.sockets[0].getsockname()[1])

    async def _stop_listening(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if isinstance(self.address, Path):
            self.address.unlink(missing_ok=True)

    async def _end_connections(self, *, reset: bool = False) -> None:
        for writer in list(self._writers):
            if reset:
                _reset_on_close(writer)
            writer.transport.abort()
        for carrier in list(self._carriers):
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.mode is Mode.RESET:
            _reset_on_close(writer)
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        _VOICE.set(self._speaking)
        self._carriers.add(task)
        self._writers.add(writer)
        try:
            await self._serve((reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._carriers.discard(task)
            self._writers.discard(writer)
            await close_quietly(writer)

    async def _serve(self, client: Streams) -> None:
        await may_speak()
        upstream = await self._connect()
        self._writers.add(upstream[1])
        try:
            async with asyncio.TaskGroup() as group:
                forth = group.create_task(self._carry(client[0], upstream[1]))
                back = group.create_task(self._carry(upstream[0], client[1]))
                await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
                forth.cancel()
                back.cancel()
        finally:
            self._writers.discard(upstream[1])
            await close_quietly(upstream[1])

    async def _connect(self) -> Streams:
        match self.upstream:
            case Path() as path:
                return await asyncio.open_unix_connection(path)
            case (host, port):
                return await asyncio.open_connection(host, port)
            case _:
                raise ConnectionRefusedError("the proxy has no upstream yet")

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(65536):
                await may_speak()
                target.write(chunk)
                await target.drain()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request as the client sent it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def encode(self, *, body: bytes | None = None) -> bytes:
        """The bytes to send to the service, over a connection of its own; ``body`` replaces the body."""
        carried = self.body if body is None else body
        headers = {**self.headers, "content-length": str(len(carried)), "connection": "close"}
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + carried


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        """The bytes to send to the client."""
        skipped = {"content-length", "connection", "transfer-encoding"}
        kept = {name: value for name, value in self.headers.items() if name not in skipped}
        headers = {**kept, "content-length": str(len(self.body)), "connection": "keep-alive"}
        lines = [f"HTTP/1.1 {self.status} -", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


#: Sends a request to the service, with another body if one is given.
Forward = Callable[..., Awaitable[HttpResponse]]
#: Looks at each request; returns the answer, or ``None`` to let it pass.
Rule = Callable[[HttpRequest, Forward], Awaitable["HttpResponse | None"]]


class HttpProxy(Proxy):
    """A :class:`Proxy` for HTTP. ``rule`` sees each request; ``requests`` is the log of what came."""

    def __init__(self, upstream: Address | None = None, *, listen: Address = ("127.0.0.1", 0)) -> None:
        super().__init__(upstream, listen=listen)
        self.rule: Rule | None = None
        self.requests: list[HttpRequest] = []

    @property
    def url(self) -> str:
        """The address as URL."""
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, client: Streams) -> None:
        reader, writer = client
        while True:
            await may_speak()
            request = await _read_request(reader)
            if request is None:
                return
            await may_speak()
            self.requests.append(request)
            answer = await self._answer_while_connected(request, reader=reader)
            if answer is None:
                return
            await may_speak()
            writer.write(answer.encode())
            await writer.drain()

    async def _answer_while_connected(
        self, request: HttpRequest, *, reader: asyncio.StreamReader
    ) -> HttpResponse | None:
        """The answer, or ``None`` where the client left meanwhile (which then also ends the request at the service)."""
        answering = asyncio.ensure_future(self._answer(request))
        try:
            while not answering.done():
                await asyncio.wait({answering}, timeout=0.1)
                if reader.at_eof():
                    return None
            return answering.result()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        async def forward(*, body: bytes | None = None) -> HttpResponse:
            return await self._forward(request.encode(body=body))

        answer = await self.rule(request, forward) if self.rule is not None else None
        return answer if answer is not None else await forward()

    async def _forward(self, encoded: bytes) -> HttpResponse:
        reader, writer = await self._connect()
        self._writers.add(writer)
        try:
            writer.write(encoded)
            await writer.drain()
            return await _read_response(reader)
        finally:
            self._writers.discard(writer)
            await close_quietly(writer)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first, headers


async def _read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    head = await _read_head(reader)
    if head is None:
        return None
    method, target, _ = head[0].split(" ", 2)
    body = await reader.readexactly(int(head[1].get("content-length", "0")))
    return HttpRequest(method=method, target=target, headers=head[1], body=body)


async def _read_response(reader: asyncio.StreamReader) -> HttpResponse:
    head = await _read_head(reader)
    if head is None:
        raise ConnectionResetError("the service ended the connection without an answer")
    length = head[1].get("content-length")
    body = await reader.read() if length is None else await reader.readexactly(int(length))
    return HttpResponse(status=int(head[0].split(" ")[1]), headers=head[1], body=body)


async def may_speak() -> None:
    """Until the connection of this task may carry something."""
    await _VOICE.get().wait()


async def close_quietly(writer: asyncio.StreamWriter) -> None:
    """Close a connection whose other end may be gone."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Make closing send a reset instead of an end (TCP only)."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def free_port() -> int:
    """A TCP port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
