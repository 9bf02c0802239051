"""Typed messages over a socket pair between a process and its child.

A frame is a 4-byte big-endian length and that many bytes of msgpack, the encoding of one tagged ``msgspec.Struct``.
The reader states the union of structs it accepts. Anything else (too long, cut, not decodable) raises
:class:`FrameError`: the peer is broken, and only the peer is ended.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
from typing import Any

import msgspec

from app.kernel.errors import ChildError

#: Largest frame, in bytes, unless both ends agree on another limit.
MAX_FRAME = 8 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class FrameError(ChildError):
    """The peer sent something that is no frame, or a frame is too large to send."""


class PeerGone(FrameError):
    """The peer closed its end."""


def encode_frame(frame: msgspec.Struct, *, limit: int = MAX_FRAME) -> bytes:
    """The bytes of ``frame``; raises :class:`FrameError` if it is larger than ``limit``."""
    body = msgspec.msgpack.encode(frame)
    if len(body) > limit:
        raise FrameError(f"{type(frame).__name__} of {len(body)} bytes is larger than a frame may be ({limit})")
    return _LENGTH.pack(len(body)) + body


@functools.cache
def decoder_of(accepts: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a union of structs. Making one takes a millisecond: call it before forking."""
    return msgspec.msgpack.Decoder(accepts)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a frame: {error}") from error


def _checked_length(header: bytes, *, limit: int = MAX_FRAME) -> int:
    (length,) = _LENGTH.unpack(header)
    if length > limit:
        raise FrameError(f"a frame of {length} bytes is larger than a frame may be ({limit})")
    return int(length)


class FrameStream:
    """Frames over one end of a socket pair, for asyncio. ``accepts`` is the union of structs it reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accepts: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder_of(accepts)
        self._sending = asyncio.Lock()

    @classmethod
    async def over(cls, end: socket.socket, accepts: Any) -> FrameStream:
        """Wrap a connected socket; the stream owns it from now on."""
        end.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=end, limit=MAX_FRAME)
        return cls(reader, writer, accepts)

    async def send(self, frame: msgspec.Struct, *, limit: int = MAX_FRAME) -> None:
        """Send one frame of at most ``limit`` bytes; raises :class:`PeerGone` if nobody is there to read it."""
        data = encode_frame(frame, limit=limit)
        async with self._sending:
            try:
                self._writer.write(data)
                await self._writer.drain()
            except (ConnectionError, OSError) as error:
                raise PeerGone(str(error)) from error

    async def receive(self) -> Any:
        """The next frame; raises :class:`PeerGone` at the end of the stream."""
        try:
            header = await self._reader.readexactly(_LENGTH.size)
            body = await self._reader.readexactly(_checked_length(header))
        except (asyncio.IncompleteReadError, ConnectionError, OSError) as error:
            raise PeerGone("the peer closed the connection") from error
        return _decoded(self._decoder, body)

    def __aiter__(self) -> FrameStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except PeerGone:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close this end. Idempotent."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, OSError):
            return


class BlockingFrames:
    """Frames over a plain socket, for processes without a loop. Not safe for use from several threads at once.

    ``limit`` is the size of the largest frame it reads: a child may trust its parent with more than the other way.
    """

    def __init__(self, end: socket.socket, accepts: Any, *, limit: int = MAX_FRAME) -> None:
        self.socket = end
        self._limit = limit
        self._decoder = decoder_of(accepts)

    def send(self, frame: msgspec.Struct) -> None:
        """Send one frame; raises :class:`PeerGone` if nobody is there to read it."""
        try:
            self.socket.sendall(encode_frame(frame))
        except (ConnectionError, OSError) as error:
            raise PeerGone(str(error)) from error

    def receive(self) -> Any:
        """The next frame; raises :class:`PeerGone` at the end of the stream."""
        length = _checked_length(self._exactly(_LENGTH.size), limit=self._limit)
        return _decoded(self._decoder, self._exactly(length))

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(min(count - len(parts), 1 << 20))
            except (ConnectionError, OSError) as error:
                raise PeerGone(str(error)) from error
            if not part:
                raise PeerGone("the peer closed the connection")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Close this end."""
        self.socket.close()
