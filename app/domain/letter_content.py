"""What was kept of a message that could not become an event, as it is shown to a person."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any


def shown_letter(row: Mapping[str, Any]) -> dict[str, Any]:
    """A letter's row with its bytes in base64 (``raw``) and, if they are text, as text (``raw_text``), and its payload
    as a value."""
    raw: bytes | None = row["raw"]
    text = row["payload_text"]
    return {
        **row,
        "raw": None if raw is None else base64.b64encode(raw).decode(),
        "raw_text": None if raw is None else as_text(raw, is_cut=row["raw_truncated"]),
        "payload": None if text is None else json.loads(text),
    }


def as_text(raw: bytes, *, is_cut: bool) -> str | None:
    """The bytes as text if they are UTF-8 without control characters; a cut may have gone through the last one."""
    for end in range(len(raw), len(raw) - (4 if is_cut else 1), -1):
        try:
            text = raw[: max(end, 0)].decode()
        except UnicodeDecodeError:
            continue
        return text if all(char.isprintable() or char.isspace() for char in text) else None
    return None
