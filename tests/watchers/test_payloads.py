from __future__ import annotations

import base64
import json
import math
import time as clock
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchers.errors import PayloadRefused
from watchers.payloads import encode_payload


class Colour(Enum):
    RED = "red"
    DEEP = (1, b"\x00")


class Level(IntEnum):
    LOW = 1


class Explosive:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("boom")


class ExplosiveText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("boom")

    def __len__(self) -> int:
        raise RuntimeError("boom")


def refused(value: object, **limits: int) -> PayloadRefused:
    with pytest.raises(PayloadRefused) as caught:
        encode_payload(value, **limits)
    return caught.value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ("", '""'),
        ([], "[]"),
        ({}, "{}"),
        (-0.0, "-0.0"),
        ("a\x00b", '"a\\u0000b"'),
        ("é😀", '"é😀"'),
        ((1, (2,)), "[1,[2]]"),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ({"c", "a", 10, 9}, '["a","c",10,9]'),
        (frozenset({frozenset({2}), frozenset({1})}), "[[1],[2]]"),
        (b"\xff\x00", '{"__type__":"bytes","base64":"/wA="}'),
        (bytearray(b"a"), '{"__type__":"bytes","base64":"YQ=="}'),
        (memoryview(b"abcd")[::2], '{"__type__":"bytes","base64":"YWM="}'),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), '"2026-01-02T03:04:05.000006+00:00"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(3, 4), '"03:04:00"'),
        (Colour.RED, '"red"'),
        (Colour.DEEP, '[1,{"__type__":"bytes","base64":"AA=="}]'),
        (Level.LOW, "1"),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Path("/a/b"), '"/a/b"'),
        (Decimal("1.10"), '"1.10"'),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_a_value_has_its_documented_text(value: object, text: str) -> None:
    assert encode_payload(value) == text
    assert encode_payload([(value,)]) == f"[[{text}]]"


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def cycle_of(kind: str) -> Any:
    inner: list[Any] = []
    inner.append({"back": (inner,)} if kind == "mixed" else inner)
    return {"x": inner}


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ({"a": [1, math.nan]}, "nan", "payload.a[1]"),
        (-math.inf, "nan", "payload"),
        (Decimal("NaN"), "nan", "payload"),
        (cycle_of("plain"), "cycle", "payload.x[0]"),
        (cycle_of("mixed"), "cycle", "payload.x[0].back[0]"),
        ({1: 2}, "key", "payload"),
        ({"a": {b"k": 1}}, "key", "payload.a"),
        ({"a": object()}, "type", "payload.a"),
        (timedelta(1), "type", "payload"),
        ({"n": 2**64}, "range", "payload.n"),
        (-(2**63) - 1, "range", "payload"),
        ("\ud800", "surrogate", "payload"),
        ({"\udfff": 1}, "surrogate", 'payload["\\udfff"]'),
        (Path("/tmp/\udcff"), "surrogate", "payload"),
        (nested(101), "depth", "payload" + "[0]" * 11 + "…" + "[0]" * 6),
        ("x" * (1024 * 1024 - 1), "size", "payload"),
        ("é" * (512 * 1024), "size", "payload"),
        (b"x" * (1024 * 1024), "size", "payload"),
    ],
)
def test_a_refusal_says_why_and_where(value: object, code: str, path: str) -> None:
    error = refused(value)
    assert (error.code, error.path) == (code, path)


def test_the_limits_are_exact() -> None:
    assert len(encode_payload("x" * (1024 * 1024 - 2))) == 1024 * 1024
    assert encode_payload(nested(100)) == "[" * 100 + "0" + "]" * 100
    assert encode_payload([1, 2], max_bytes=5, max_depth=1) == "[1,2]"
    assert refused([1, 2], max_bytes=4).code == "size"
    assert refused([[]], max_depth=1).code == "depth"
    assert encode_payload({"a": "é"}, max_bytes=10) == '{"a":"é"}'
    assert refused({"a": "é"}, max_bytes=9).code == "size"


def test_siblings_that_are_the_same_object_are_no_cycle() -> None:
    shared = (1, [2])
    assert encode_payload({"a": shared, "b": [shared, shared]}) == '{"a":[1,[2]],"b":[[1,[2]],[1,[2]]]}'


def test_a_small_graph_that_is_an_enormous_tree_is_refused_by_size() -> None:
    value: Any = (0,)
    for _ in range(80):
        value = (value, value)
    assert refused(value).code == "size"


def test_a_huge_text_is_refused_before_it_is_copied() -> None:
    huge = "x" * (64 * 1024 * 1024)
    started = clock.perf_counter()
    assert refused({"a": [huge]}).code == "size"
    assert clock.perf_counter() - started < 0.5


def test_a_stack_that_is_nearly_full_gives_a_refusal() -> None:
    def deeper() -> PayloadRefused | None:
        try:
            return deeper()
        except RecursionError:
            try:
                encode_payload(nested(90))
            except PayloadRefused as error:
                return error
            return None

    error = deeper()
    assert error is None or error.code == "depth"
    assert refused(nested(100_000), max_depth=10**9).code == "depth"


def test_values_whose_own_code_raises_are_refused_or_read_without_it() -> None:
    assert encode_payload({"k": [ExplosiveText("x")]}) == '{"k":["x"]}'
    assert refused(Explosive()).code == "type"
    assert refused({"a": [Explosive()]}).code == "type"


def test_a_refusal_shows_no_content() -> None:
    assert "hunter2" not in str(refused({"password": ["hunter2", object()]}))


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:  # a signalling Decimal NaN
        return False
    return True


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.uuids()
    | st.sampled_from([Colour.RED, Level.LOW, Path("x"), PurePosixPath("\udcff"), object, object(), timedelta(1)])
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=())) | st.integers(), inner)
        | st.frozensets(_scalars.filter(_is_hashable))
    ),
    max_leaves=20,
)


@given(_values)
@settings(max_examples=200, deadline=None)
def test_any_value_gives_json_or_a_refusal(value: Any) -> None:
    try:
        text = encode_payload(value)
    except PayloadRefused as error:
        refusal: PayloadRefused | None = error
        text = "null"
    else:
        refusal = None
    assert encode_payload(json.loads(text)) == text
    if refusal is not None:
        assert refusal.code in {"nan", "cycle", "key", "type", "range", "surrogate", "depth", "size"}
        assert refusal.path.startswith("payload")
        assert str(refusal).encode()


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)  # fmt: skip


@given(_plain)
@settings(max_examples=100, deadline=None)
def test_json_values_come_back_equal(value: Any) -> None:
    assert json.loads(encode_payload(value)) == value


@given(st.binary())
def test_the_envelope_of_bytes_gives_them_back(data: bytes) -> None:
    assert base64.b64decode(json.loads(encode_payload(data))["base64"]) == data
