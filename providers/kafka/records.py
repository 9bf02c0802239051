"""What a Kafka message becomes: one trigger event."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from watchers.bodies import decode_body
from watchers.triggers import TriggerEvent

_TIMESTAMP_TYPES = {0: "create", 1: "append"}


class Record(Protocol):
    """A message as the client hands it out."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes as JSON can carry them: ``encoding`` is ``text``, ``base64``, or ``None`` for bytes that are absent."""

    value: str | None
    encoding: str | None


def event_of(record: Record, *, source: str) -> TriggerEvent:
    """The event of one message.

    The payload is a JSON object: ``value`` and ``encoding`` (``json``, ``text`` or ``base64``; both null for a
    message without a value, as compacted topics use to delete a key), ``key`` and ``key_encoding`` (``text`` or
    ``base64``; both null for no key), ``headers`` (a list of ``[name, value, encoding]`` in the order sent, names may
    repeat), ``topic``, ``partition``, ``offset``, ``timestamp`` (ISO 8601, UTC; null if the message has none) and
    ``timestamp_type`` (``create`` or ``append``).
    """
    body = None if record.value is None else decode_body(record.value)
    key = text_of(record.key)
    headers = []
    for name, value in record.headers:
        header = text_of(value)
        headers.append([name, header.value, header.encoding])
    payload: dict[str, Any] = {
        "value": None if body is None else body.value,
        "encoding": None if body is None else body.encoding,
        "key": key.value,
        "key_encoding": key.encoding,
        "headers": headers,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": moment_of(record.timestamp),
        "timestamp_type": _TIMESTAMP_TYPES.get(record.timestamp_type),
    }
    return TriggerEvent(payload, identity_of(record), source=source, raw=record.value)


def identity_of(record: Record) -> str:
    """Names the message for ever: a topic that was deleted and made anew has other timestamps at the same offsets."""
    return f"{record.topic}/{record.partition}/{record.offset}/{record.timestamp}"


def moment_of(milliseconds: int) -> str | None:
    """A record's timestamp as ISO 8601 text; ``None`` for none, or for one that no calendar has."""
    if milliseconds < 0:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)
    except (OverflowError, OSError, ValueError):
        return None
    return moment.isoformat(timespec="milliseconds")


def text_of(data: bytes | None) -> Text:
    """Keys and headers: never read as JSON, so that the key ``42`` stays a text."""
    if data is None:
        return Text(None, None)
    try:
        return Text(data.decode("utf-8"), "text")
    except UnicodeDecodeError:
        return Text(base64.b64encode(data).decode("ascii"), "base64")
