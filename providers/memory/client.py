"""A client of the memory broker: one connection, one request at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from providers.memory.queues import QueueStatistics
from providers.memory.wire import Frame, FrameRefused, read_frame
from watchers.errors import SourceMisconfigured, SourceUnavailable

#: Names the socket where a trigger or command gives none.
SOCKET_VARIABLE = "TIDEGATE_MEMORY_BROKER"
#: Seconds a request may take beyond the time it asked the broker to wait.
DEADLINE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message handed to this client. ``attempt`` counts from 1."""

    id: str
    body: bytes = field(repr=False)
    lane: str | None
    attempt: int


def socket_path(given: str | None = None) -> Path:
    """``given``, else what the environment names; raises :class:`SourceMisconfigured` if neither does."""
    path = given or os.environ.get(SOCKET_VARIABLE)
    if not path:
        raise SourceMisconfigured(f"no memory broker is named: set {SOCKET_VARIABLE} or the option socket")
    return Path(path)


class MemoryClient:
    """Requests to the broker at ``path``; connects with the first one and again after a failure.

    Every method raises :class:`SourceUnavailable` if the broker cannot be reached, breaks off or does not answer in
    time, and :class:`SourceMisconfigured` if it refuses the request. A failed or cancelled request closes the
    connection, because its answer may still be under way; whatever the connection held returns to its queues.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(self, queue: str, bodies: Sequence[bytes], *, lanes: Sequence[str | None] = ()) -> list[str]:
        """Append messages in order; returns their ids. ``lanes`` has none or as many entries as ``bodies``."""
        named = lanes or [None] * len(bodies)
        messages = [{"size": len(body), "lane": lane} for body, lane in zip(bodies, named, strict=True)]
        head = {"op": "publish", "queue": queue, "messages": messages}
        answer = await self._request(Frame(head=head, raw=b"".join(bodies)))
        return [str(identifier) for identifier in answer.head["ids"]]

    async def receive(self, queue: str, limit: int, *, wait: float, visibility: float) -> list[Received]:
        """At most ``limit`` messages, waiting up to ``wait`` seconds for the first."""
        head = {"op": "receive", "queue": queue, "limit": limit, "wait": wait, "visibility": visibility}
        answer = await self._request(Frame(head=head), patience=wait)
        received, offset = [], 0
        for entry in answer.head["messages"]:
            end = offset + entry["size"]
            body = answer.raw[offset:end]
            received.append(Received(id=entry["id"], body=body, lane=entry["lane"], attempt=entry["attempt"]))
            offset = end
        return received

    async def acknowledge(self, queue: str, identifiers: Sequence[str]) -> None:
        """Forget these messages; unknown ones are ignored."""
        await self._request(Frame(head={"op": "ack", "queue": queue, "ids": list(identifiers)}))

    async def release(self, queue: str, identifiers: Sequence[str]) -> None:
        """Return these messages to the queue at once."""
        await self._request(Frame(head={"op": "release", "queue": queue, "ids": list(identifiers)}))

    async def extend(self, queue: str, identifiers: Sequence[str], *, visibility: float) -> None:
        """Keep these messages for another ``visibility`` seconds from now."""
        head = {"op": "extend", "queue": queue, "ids": list(identifiers), "visibility": visibility}
        await self._request(Frame(head=head))

    async def return_all(self, queue: str) -> None:
        """Make everything in flight visible again, whoever holds it."""
        await self._request(Frame(head={"op": "return", "queue": queue}))

    async def statistics(self, queue: str) -> QueueStatistics:
        """How many messages the queue has."""
        head = (await self._request(Frame(head={"op": "stats", "queue": queue}))).head
        return QueueStatistics(visible=head["visible"], in_flight=head["in_flight"])

    async def close(self) -> None:
        """End the connection, if there is one."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with suppress(OSError):
                await streams[1].wait_closed()

    async def _request(self, request: Frame, *, patience: float = 0.0) -> Frame:
        async with self._turn:
            try:
                answer = await self._exchange(request, patience=patience)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, FrameRefused) as error:
                await self.close()
                raise SourceUnavailable(f"memory broker at {self._path}: {_sentence(error)}") from error
            except BaseException:
                self._drop()
                raise
        if not answer.head.get("ok"):
            raise SourceMisconfigured(f"memory broker at {self._path} refuses: {answer.head.get('error')}")
        return answer

    async def _exchange(self, request: Frame, *, patience: float) -> Frame:
        async with asyncio.timeout(DEADLINE + patience):
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(self._path)
            reader, writer = self._streams
            writer.write(request.encode())
            await writer.drain()
            answer = await read_frame(reader)
        if answer is None:
            raise ConnectionResetError("the broker ended the connection")
        return answer

    def _drop(self) -> None:
        """End the connection without waiting: for a cancelled request."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()


def _sentence(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__
