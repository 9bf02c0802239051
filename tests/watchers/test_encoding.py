from __future__ import annotations

import collections
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime, time, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.watchers.samples import BERLIN, KWARGS, Colour, EchoTrigger, Level
from watchers.connections import Connection
from watchers.describe import TriggerDescription, build_trigger, describe_trigger
from watchers.encoding import decode_kwargs, encode_kwargs, trigger_identity
from watchers.errors import EncodingRefused, WatcherDeclarationError
from watchers.importing import import_class
from watchers.temporal import DateTimeTrigger
from watchers.triggers import BaseTrigger, TriggerEvent


class Point(NamedTuple):
    x: int


class Moment(datetime):
    """A subclass without meaning of its own, as date libraries have them."""


class Precise(timedelta):
    """A subclass that knows more than its base."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Precise)

    __hash__ = timedelta.__hash__


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (datetime, time)):
        return bool(left == right) and left.tzinfo == right.tzinfo and left.fold == right.fold
    return bool(repr(left) == repr(right)) or bool(left == right)


@pytest.mark.parametrize("name", KWARGS)
def test_each_kind_of_value_comes_back(name: str) -> None:
    kwargs = {name: KWARGS[name], "inside": [(KWARGS[name],), {"k": KWARGS[name]}]}
    text = encode_kwargs(kwargs)
    decoded = decode_kwargs(text)
    assert same(decoded, kwargs)
    assert encode_kwargs(decoded) == text


def test_a_zone_is_kept_by_its_name() -> None:
    decoded = decode_kwargs(encode_kwargs({"at": datetime(2026, 7, 1, tzinfo=BERLIN)}))
    assert decoded["at"].tzinfo is BERLIN


def test_values_that_differ_have_texts_that_differ() -> None:
    different = [1, 1.0, True, "1", b"1", (1,), [1], {1}, frozenset({1}), 0.0, -0.0, Level.LOW, KWARGS["nfc"],
                 KWARGS["nfd"], None, {}, [], (), {1: 2}, {"1": 2}, Path("1"), Colour.RED, "red"]  # fmt: skip
    texts = [encode_kwargs({"x": value}) for value in different]
    for left, right in itertools.combinations(texts, 2):
        assert left != right


def test_order_of_names_and_members_does_not_matter() -> None:
    assert encode_kwargs({"a": {"x": 1, "y": 2}, "b": 1}) == encode_kwargs({"b": 1, "a": {"y": 2, "x": 1}})
    assert encode_kwargs({"a": {1: 2, "y": 3}}) == encode_kwargs({"a": {"y": 3, 1: 2}})


def local_enum() -> Any:
    class Local(Enum):
        A = 1

    return Local.A


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append([value])
    return value


def shared() -> Any:
    value: Any = ()
    for _ in range(80):
        value = (value, value)
    return value


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        (object(), "object has no defined encoding", "kwargs.x"),
        ({"a": [1, object()]}, "no defined encoding", "kwargs.x.a[1]"),
        (lambda: 1, "cannot be carried", "kwargs.x"),
        (dict, "cannot be carried", "kwargs.x"),
        (Connection(conn_id="c", password="hunter2"), "connection id instead", "kwargs.x"),
        (Point(1), "would come back as tuple", "kwargs.x"),
        (collections.OrderedDict(), "would come back as dict", "kwargs.x"),
        (Precise(1), "lose a part", "kwargs.x"),
        ("\ud800", "surrogate", "kwargs.x"),
        ({"\ud800": 1}, "surrogate", "kwargs.x"),
        (Path("\udcff"), "surrogate", "kwargs.x"),
        (bytearray(b"x"), "no defined encoding", "kwargs.x"),
        (cycle(), "contains itself", "kwargs.x[0][0][0][0][0][0][0][0][0][0][0]…[0][0][0][0][0][0]"),
        (shared(), "parts", "kwargs"),
        ("x" * 65536, "more than 65536", "kwargs"),
        (local_enum(), "inside a function", "kwargs.x"),
    ],
)
def test_a_refusal_says_why_and_where(value: object, reason: str, path: str) -> None:
    with pytest.raises(EncodingRefused, match=reason) as caught:
        encode_kwargs({"x": value})
    assert caught.value.path == path or caught.value.path.startswith("kwargs.x[0]")
    assert "hunter2" not in str(caught.value)


def test_a_subclass_that_means_the_same_is_its_base() -> None:
    assert encode_kwargs({"x": Moment(2026, 1, 1)}) == encode_kwargs({"x": datetime(2026, 1, 1)})  # noqa: DTZ001


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"a":{"__type__":"no"}}', '{"a":{"__type__":"date","value":"x"}}', '{"a":{"__type__":[]}}']
)
def test_a_text_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(EncodingRefused):
        decode_kwargs(text)


_hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.datetimes(timezones=st.none() | st.timezones()) | st.dates() | st.times(timezones=st.none() | st.timezones())
    | st.timedeltas() | st.decimals(allow_nan=False) | st.uuids() | st.sampled_from([*Colour, Level.LOW, Path("a")]),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
_values = st.recursive(
    _hashable,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_hashable, inner, max_size=4) | st.sets(_hashable, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _values, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_arguments_come_back_equal_and_of_the_same_types(kwargs: dict[str, Any]) -> None:
    text = encode_kwargs(kwargs)
    decoded = decode_kwargs(text)
    assert same(decoded, kwargs)
    assert encode_kwargs(decoded) == text


def test_the_identity_is_the_same_in_every_process_and_for_every_hash_seed() -> None:
    here = describe_trigger(EchoTrigger(**KWARGS)).identity
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", "from tests.watchers import samples; samples.print_identity()"],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(15)
    ]
    assert {process.communicate(timeout=60)[0] for process in processes} == {here}
    assert trigger_identity("a", "b") != trigger_identity("ab", "")


# -------------------------------------------------------------------------------------------- descriptions


class Answering(EchoTrigger):
    """Serialises to whatever it was given."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def serialize(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Silent(BaseTrigger):
    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent(None)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        raise NotImplementedError


ECHO = "tests.watchers.samples.EchoTrigger"


def test_a_description_builds_an_equal_trigger() -> None:
    description = describe_trigger(EchoTrigger(**KWARGS))
    assert description.classpath == ECHO
    built = build_trigger(description.classpath, description.kwargs_text)
    assert describe_trigger(built) == description
    assert "Berlin" not in repr(description)
    assert describe_trigger(EchoTrigger.Inner()).classpath == f"{ECHO}.Inner"


@pytest.mark.parametrize(
    ("trigger", "reason"),
    [
        (Silent(), r"Silent has no serialize\(\)"),
        (Answering(ValueError("why")), r"Answering.serialize\(\) raised ValueError: why"),
        (Answering(None), "must return"),
        (Answering((ECHO, [])), "must return"),
        (Answering((3, {})), "must return"),
        (Answering((ECHO, {1: 2})), "no name of a keyword"),
        (Answering(("no_such_module.X", {})), r"Answering.serialize\(\).*no module 'no_such_module'"),
        (Answering(("tests.watchers.samples.Nope", {})), "has no 'Nope'"),
        (Answering(("tests.watchers.samples.KWARGS", {})), "is no class"),
        (Answering(("tests.watchers.samples.Colour", {})), "is not a BaseTrigger"),
        (Answering(("__main__.X", {})), "__main__"),
        (Answering(("a.<locals>.X", {})), "inside a function"),
        (Answering(("X", {})), "not the import path"),
        (Answering(("watchers.temporal.DateTimeTrigger", {"wrong": 1})), "does not take"),
        (Answering((ECHO, {"a": [object()]})), r"Answering\(a\[0\]\): builtins.object has no defined encoding"),
    ],
)
def test_a_trigger_that_cannot_be_described_is_named(trigger: BaseTrigger, reason: str) -> None:
    with pytest.raises((WatcherDeclarationError, EncodingRefused), match=reason):
        describe_trigger(trigger)


def test_a_module_that_fails_to_import_is_not_taken_for_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_missing.py").write_text("import not_there_at_all\n")
    (tmp_path / "raises_at_once.py").write_text("raise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WatcherDeclarationError, match=r"import of needs_missing fails.*not_there_at_all"):
        import_class("needs_missing.X")
    with pytest.raises(WatcherDeclarationError, match="raises_at_once fails: RuntimeError: boom"):
        import_class("raises_at_once.X")


def test_a_module_named_after_any_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "01-my orders.py").write_text("class Outer:\n    class Inner: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert import_class("01-my orders.Outer.Inner").__qualname__ == "Outer.Inner"
    for path in ("", ".", "a.", ".X", "watchers..X"):
        with pytest.raises(WatcherDeclarationError):
            import_class(path)


def test_equal_moments_are_one_trigger() -> None:
    def described(moment: datetime) -> TriggerDescription:
        return describe_trigger(DateTimeTrigger(moment))

    utc = KWARGS["berlin_first"].astimezone(KWARGS["utc"].tzinfo)
    assert described(KWARGS["berlin_first"]) == described(utc)
    assert described(KWARGS["berlin_first"]) != described(KWARGS["berlin_second"])
