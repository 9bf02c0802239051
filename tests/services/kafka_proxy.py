"""A proxy that a Kafka client cannot get around: the addresses that brokers tell of themselves lead to it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from tests.services.proxy import Proxy, may_speak


class KafkaProxy(Proxy):
    """Carries Kafka's frames to the one broker at ``127.0.0.1``; in answers its own port takes the broker's place."""

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        assert isinstance(self.upstream, tuple)
        told = b"127.0.0.1" + struct.pack(">i", self.upstream[1])
        ours = b"127.0.0.1" + struct.pack(">i", self.port)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await source.readexactly(4)
                frame = await source.readexactly(int.from_bytes(size))
                await may_speak()
                target.write(size + frame.replace(told, ours))
                await target.drain()
