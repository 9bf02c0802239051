from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchers.bodies import BODY_LIMITS, decode_body
from watchers.payloads import PayloadLimits, encode_payload


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"0", 0),
        (b"-0.0", -0.0),
        (b"false", False),
        (b"null", None),
        (b'""', ""),
        (b"{}", {}),
        (b"[]", []),
        (b' {"a": [1, 2.5]}\n', {"a": [1, 2.5]}),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"a\\u0000"', "a\x00"),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"[" * 96 + b"]" * 96, json.loads("[" * 96 + "]" * 96)),
    ],
)
def test_strict_json_becomes_its_value(body: bytes, value: Any) -> None:
    decoded = decode_body(body)
    assert (decoded.encoding, repr(decoded.value)) == ("json", repr(value))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"end",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"1" * 10_000,
        b'{"a":1,"a":2}',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'"\x01"',
        b"[1] x",
        b"01",
        b"'a'",
        b"[" * 97 + b"]" * 97,
        b"[" * 200_000,
        b'{"a":' * 50_000,
    ],
)
def test_other_text_stays_as_it_is(body: bytes) -> None:
    decoded = decode_body(body)
    assert (decoded.encoding, decoded.value) == ("text", body.decode())
    assert decoded.to_bytes() == body


@pytest.mark.parametrize("body", [b"\xff", b"\x80abc", b'"\xed\xa0\x80"', b"\xfe\xff\x00{"])
def test_other_bytes_become_base64(body: bytes) -> None:
    decoded = decode_body(body)
    assert decoded.encoding == "base64"
    assert decoded.to_bytes() == body


def test_json_over_the_size_limit_stays_text() -> None:
    limits = PayloadLimits(max_bytes=10)
    assert decode_body(b"[1,2,3,45]", limits=limits).encoding == "json"
    assert decode_body(b"[1,2,3,456]", limits=limits).encoding == "text"
    assert decode_body(b"[1e15,1e9]", limits=limits).encoding == "text"  # longer when written anew


@given(st.binary() | st.text().map(str.encode))
def test_no_byte_is_lost(body: bytes) -> None:
    decoded = decode_body(body)
    if decoded.encoding == "json":
        assert json.loads(decoded.to_bytes()) == json.loads(body)
    else:
        assert decoded.to_bytes() == body


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_json, st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_decoded_can_be_a_payload(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    decoded = decode_body(body)
    encode_payload({"body": [decoded.value]})
    if decoded.encoding == "json":
        assert decoded.value == value


def test_room_is_left_for_what_a_provider_wraps_around() -> None:
    deepest = decode_body(b"[" * BODY_LIMITS.max_depth + b"]" * BODY_LIMITS.max_depth)
    assert deepest.encoding == "json"
    encode_payload({"a": {"b": {"c": [deepest.value]}}})
