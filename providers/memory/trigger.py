"""An event trigger over a queue of the memory broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from providers.memory.client import MemoryClient, Received, socket_path
from watchers.bodies import decode_body
from watchers.errors import SourceError, WatcherDeclarationError
from watchers.triggers import BaseEventTrigger, TriggerEvent, Yielded

#: Longest pause between two attempts to reach the broker, in seconds.
LONGEST_PAUSE = 2.0


class MemoryTrigger(BaseEventTrigger):
    """Each message of a queue of the memory broker is one event.

    ``queue_name`` is the queue's name and ``socket`` the broker's socket (default: ``TIDEGATE_MEMORY_BROKER``).
    ``max_messages`` is the most that one yield carries. After ``visibility_timeout`` seconds a message that is not
    acknowledged may go to another client. One request waits ``wait_seconds`` for a message.

    The payload is ``{"value", "encoding", "message_id", "queue", "lane"}``, value and encoding as
    :func:`watchers.bodies.decode_body` gives them; key is the message's id, source ``memory:<queue>``.
    """

    acknowledges = True
    public_kwargs: ClassVar[frozenset[str]] = frozenset({"queue_name", "socket"})

    def __init__(
        self,
        queue_name: str,
        *,
        socket: str | None = None,
        max_messages: int = 100,
        visibility_timeout: float = 30.0,
        wait_seconds: float = 10.0,
    ) -> None:
        if not isinstance(queue_name, str) or not queue_name.strip():
            raise WatcherDeclarationError("a memory queue needs a name that is not blank")
        if max_messages < 1 or min(visibility_timeout, wait_seconds) <= 0:
            raise WatcherDeclarationError(
                f"memory queue {queue_name!r}: max_messages, visibility_timeout and wait_seconds must be positive"
            )
        self.queue_name = queue_name
        self.socket = socket
        self.max_messages = max_messages
        self.visibility_timeout = visibility_timeout
        self.wait_seconds = wait_seconds
        self._unconfirmed: list[str] = []
        self._failures = 0
        #: A connection of its own: a receive that waits holds the other.
        self._counting: MemoryClient | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as for every trigger."""
        return "providers.memory.trigger.MemoryTrigger", {
            "queue_name": self.queue_name,
            "socket": self.socket,
            "max_messages": self.max_messages,
            "visibility_timeout": self.visibility_timeout,
            "wait_seconds": self.wait_seconds,
        }

    def default_source(self) -> str:
        """``memory:<queue>``: the same for every trigger on this queue."""
        return f"memory:{self.queue_name}"

    async def run(self) -> AsyncIterator[Yielded]:
        """Yield what is received and acknowledge it once it is resolved."""
        client: MemoryClient | None = None
        try:
            while True:
                try:
                    client = client or MemoryClient(socket_path(self.socket))
                    await self._confirm(client)
                    received = await self._receive(client)
                except SourceError as error:
                    await self._pause_after(error)
                    continue
                if received:
                    yield [self._event(message) for message in received]
                    self._unconfirmed += [message.id for message in received]
        finally:
            for each in (client, self._counting):
                if each is not None:
                    await each.close()

    async def lag(self) -> int:
        """Messages that wait and are in nobody's hands."""
        self._counting = self._counting or MemoryClient(socket_path(self.socket))
        return (await self._counting.statistics(self.queue_name)).visible

    async def _confirm(self, client: MemoryClient) -> None:
        """Acknowledge what is resolved. Where that fails it is repeated before the next receive: an acknowledgement
        names messages, so it counts over another connection and after a redelivery too."""
        if self._unconfirmed:
            await client.acknowledge(self.queue_name, self._unconfirmed)
            self._unconfirmed = []

    async def _receive(self, client: MemoryClient) -> list[Received]:
        """Wait for messages; after a failure only look, so that recovery is reported at once."""
        wait = 0.0 if self._failures else self.wait_seconds
        limit = self.max_messages if self.task_instance is None else 1  # a deferred task takes one event
        received = await client.receive(self.queue_name, limit, wait=wait, visibility=self.visibility_timeout)
        if self._failures:
            self._failures = 0
            self.status.recovered()
        return received

    async def _pause_after(self, error: SourceError) -> None:
        self._failures += 1
        self.status.failed(error)
        pause = min(LONGEST_PAUSE, 0.1 * 2 ** min(self._failures, 10))
        await asyncio.sleep(pause * random.uniform(0.8, 1.0))

    def _event(self, message: Received) -> TriggerEvent:
        body = decode_body(message.body)
        payload = {
            "value": body.value,
            "encoding": body.encoding,
            "message_id": message.id,
            "queue": self.queue_name,
            "lane": message.lane,
        }
        return TriggerEvent(payload, key=message.id, source=self.default_source(), raw=message.body)
