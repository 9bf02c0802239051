"""Values that are secrets by the name they stand under are not shown."""

from __future__ import annotations

from typing import Any

from watchers.masking import MASK, tells_secret


def redacted(value: Any) -> Any:
    """``value`` with every member masked whose key tells a secret. ``value`` is JSON."""
    if isinstance(value, dict):
        return {key: MASK if tells_secret(key) and member else redacted(member) for key, member in value.items()}
    if isinstance(value, list):
        return [redacted(member) for member in value]
    return value
