"""Identifiers made here rather than by the database."""

from __future__ import annotations

import secrets
import time
import uuid

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def time_ordered_id() -> uuid.UUID:
    """A UUID of version 7 (RFC 9562, section 5.7): 48 bits of Unix milliseconds first, so later sorts later."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)


def short_suffix(length: int = 8) -> str:
    """Random lower-case letters and digits; about 41 bits for 8 characters, so a caller still handles a collision."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
