"""JSON values taken strictly: what is no JSON value is refused where the author hands it over, with its place.

Payloads of triggers are converted more freely (``watchers.payloads``); an asset's or event's ``extra`` is not, so that
what a task stores is exactly what the next one reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from app.kernel.errors import TooLarge
from watchers.errors import PayloadRefused
from watchers.payloads import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, encode_payload

MAX_DEPTH = 100


class NotJson(TypeError):
    """A value is no JSON value; ``path`` says which."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


def json_value(value: Any, path: str, *, depth: int = 0) -> Any:
    """A copy of ``value`` made of JSON's own types; tuples become lists. Raises :class:`NotJson`."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value, path)
    if kind is int:
        if not -(2**63) <= value < 2**64:
            raise NotJson(path, "an integer beyond 64 bits")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotJson(path, "a number that is not finite")
        return value
    if depth >= MAX_DEPTH:
        raise NotJson(path, f"nested deeper than {MAX_DEPTH}, or contains itself")
    if isinstance(value, Mapping):
        return _object(value, path, depth)
    if kind is list or kind is tuple:
        return [json_value(member, f"{path}[{index}]", depth=depth + 1) for index, member in enumerate(value)]
    raise NotJson(path, f"a {kind.__name__} is no JSON value; write it as text or a number")


def json_object(value: Any, path: str) -> dict[str, Any]:
    """:func:`json_value` for a value that must be an object."""
    if not isinstance(value, Mapping):
        raise NotJson(path, f"must be a mapping, not a {type(value).__name__}")
    return _object(value, path, 0)


def payload_text(
    value: Any, *, what: str, max_bytes: int = MAX_PAYLOAD_BYTES, max_depth: int = MAX_PAYLOAD_DEPTH
) -> str:
    """The JSON text of what a caller gives as the payload, extra or conf ``what``.

    Raises :class:`TooLarge` with size and limit, :class:`watchers.errors.PayloadRefused` for anything else.
    """
    try:
        return encode_payload(value, max_bytes=max_bytes, max_depth=max_depth)
    except PayloadRefused as refused:
        size = _size(value) if refused.code == "size" else None
        if size is None:
            raise
        raise TooLarge(what=what, size=size, limit=max_bytes) from None


def _size(value: Any) -> int | None:
    """Bytes of the JSON text of a value that a JSON text was read from; None if it has none."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None
    return len(text.encode("utf-8", "surrogatepass"))


def _object(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, member in value.items():
        if type(key) is not str:
            raise NotJson(path, f"the key {key!r} is a {type(key).__name__}, not text")
        plain[_text(key, path)] = json_value(member, f"{path}[{key!r}]", depth=depth + 1)
    return plain


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJson(path, "text with a lone surrogate") from None
    return value
