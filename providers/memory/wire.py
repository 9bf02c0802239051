"""Frames between the memory broker and its clients.

A frame is two unsigned 32-bit lengths (big endian), a JSON object of the first length, and raw bytes of the second.
Bodies travel in the raw part, so any bytes can be a message. The raw part of several messages is their concatenation;
the JSON object states each one's size.
"""

from __future__ import annotations

import json
import struct
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass, field
from typing import Any

_LENGTHS = struct.Struct("!II")
#: Longest JSON object and longest raw part of one frame, in bytes.
HEAD_LIMIT = 4 * 1024 * 1024
RAW_LIMIT = 64 * 1024 * 1024


class FrameRefused(ValueError):
    """What came is no frame of this protocol, or exceeds its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One request or answer."""

    head: dict[str, Any]
    raw: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """The bytes to send; raises :class:`FrameRefused` beyond the limits."""
        head = json.dumps(self.head, separators=(",", ":")).encode()
        if len(head) > HEAD_LIMIT or len(self.raw) > RAW_LIMIT:
            raise FrameRefused(f"a frame of {len(head)} + {len(self.raw)} bytes exceeds {HEAD_LIMIT} + {RAW_LIMIT}")
        return _LENGTHS.pack(len(head), len(self.raw)) + head + self.raw


async def read_frame(reader: StreamReader) -> Frame | None:
    """The next frame, or ``None`` where the peer ended between frames.

    Raises :class:`FrameRefused` for anything that is no frame, ``IncompleteReadError`` where it breaks off inside one.
    """
    try:
        lengths = await reader.readexactly(_LENGTHS.size)
    except IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    head_size, raw_size = _LENGTHS.unpack(lengths)
    if head_size > HEAD_LIMIT or raw_size > RAW_LIMIT:
        raise FrameRefused(f"a frame announces {head_size} + {raw_size} bytes")
    text = await reader.readexactly(head_size)
    raw = await reader.readexactly(raw_size)
    try:
        head = json.loads(text)
    except ValueError as error:
        raise FrameRefused("the head of a frame is not JSON") from error
    if not isinstance(head, dict):
        raise FrameRefused("the head of a frame is not an object")
    return Frame(head=head, raw=raw)
