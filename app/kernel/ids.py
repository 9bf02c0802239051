"""Identifiers made here rather than by the database."""

from __future__ import annotations

import secrets

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def short_suffix(length: int = 8) -> str:
    """Random lower-case letters and digits; about 41 bits for 8 characters, so a caller still handles a collision."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
