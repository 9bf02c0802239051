"""What a message becomes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.kafka.positions import TopicPositions
from providers.kafka.records import event_of, moment_of


@dataclass(slots=True, kw_only=True)
class Message:
    """Stands for the client's record."""

    topic: str = "orders"
    partition: int = 3
    offset: int = 17
    timestamp: int = 1_796_071_020_028
    timestamp_type: int = 0
    key: bytes | None = None
    value: bytes | None = b"{}"
    headers: Iterable[tuple[str, bytes | None]] = ()


def restored(value: str | None, encoding: str | None) -> bytes | None:
    if value is None:
        assert encoding is None
        return None
    return base64.b64decode(value) if encoding == "base64" else value.encode()


def test_a_message_with_everything() -> None:
    message = Message(key=b"42", value=b'{"order": 7}', headers=(("trace", b"abc"), ("trace", b"\xff"), ("none", None)))
    event = event_of(message, source="kafka:cluster:orders")
    assert event.payload == {
        "value": {"order": 7},
        "encoding": "json",
        "key": "42",
        "key_encoding": "text",
        "headers": [["trace", "abc", "text"], ["trace", "/w==", "base64"], ["none", None, None]],
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "timestamp": "2026-11-30T20:37:00.028+00:00",
        "timestamp_type": "create",
    }
    assert event.key == "orders/3/17/1796071020028"
    assert event.source == "kafka:cluster:orders"
    assert event.raw == b'{"order": 7}'


def test_a_deleted_key_is_an_event_whose_value_is_null() -> None:
    event = event_of(Message(key=b"k", value=None), source="s")
    assert (event.payload["value"], event.payload["encoding"], event.raw) == (None, None, None)
    said_null = event_of(Message(value=b"null"), source="s")
    assert (said_null.payload["value"], said_null.payload["encoding"]) == (None, "json")


@given(
    key=st.none() | st.binary(max_size=30) | st.text(max_size=10).map(str.encode),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=4),
    value=st.none() | st.binary(max_size=60),
)
def test_no_byte_is_lost(key: bytes | None, headers: list[tuple[str, bytes | None]], value: bytes | None) -> None:
    event = event_of(Message(key=key, headers=tuple(headers), value=value), source="s")
    payload = json.loads(json.dumps(event.payload, allow_nan=False))
    assert restored(payload["key"], payload["key_encoding"]) == key
    assert [(name, restored(text, encoding)) for name, text, encoding in payload["headers"]] == headers
    assert event.raw == value
    if payload["encoding"] != "json":
        assert restored(payload["value"], payload["encoding"]) == value


@given(st.integers(min_value=0, max_value=4_102_444_800_000))
def test_a_timestamp_keeps_its_milliseconds(milliseconds: int) -> None:
    moment = moment_of(milliseconds)
    assert moment is not None
    parsed = datetime.fromisoformat(moment)
    assert int(parsed.timestamp()) * 1000 + parsed.microsecond // 1000 == milliseconds


@pytest.mark.parametrize("milliseconds", [-1, 2**62])
def test_a_timestamp_that_is_none_or_absurd_is_null(milliseconds: int) -> None:
    event = event_of(Message(timestamp=milliseconds), source="s")
    assert event.payload["timestamp"] is None
    assert event.key == f"orders/3/17/{milliseconds}"


def test_positions_are_read_back_as_written() -> None:
    positions = TopicPositions(source="s", started=True, topic_id="ab", offsets={0: 5, 11: 0})
    assert TopicPositions.stored("s", positions.lanes()) == positions
    assert positions.lanes() == {"topic": "ab", "0": 5, "11": 0}


def test_positions_of_nothing_and_of_something_unknown() -> None:
    assert not TopicPositions.stored("s", {}).started
    known = TopicPositions.stored("s", {"topic": None, "x": 1, "1": "two", "2": -1, "3": 4})
    assert known.started
    assert known.topic_id is None
    assert known.offsets == {3: 4}
