"""The published rules of names and URIs: which spellings are one asset. The rows are those of docs/assets.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.assets import identify, normalise_uri

SAME = [
    ("scheme case", "S3://bucket/key", "s3://bucket/key"),
    ("one slash at the end", "s3://bucket/key/", "s3://bucket/key"),
    ("several slashes at the end", "s3://bucket/key///", "s3://bucket/key"),
    ("empty path", "s3://bucket", "s3://bucket/"),
    ("query order", "s3://bucket/key?b=2&a=1", "s3://bucket/key?a=1&b=2"),
    ("query without value", "s3://bucket/key?flag=&a=1", "s3://bucket/key?a=1"),
    ("query spelling", "s3://bucket/key?a=%41", "s3://bucket/key?a=A"),
    ("fragment", "s3://bucket/key#part", "s3://bucket/key"),
    ("unicode form", "s3://bucket/re\u0301sume", "s3://bucket/r\u00e9sume"),
    ("password", "s3://user:secret@bucket/key", "s3://user@bucket/key"),
    ("file with one slash", "file:/data/in", "file:///data/in"),
]

DIFFERENT = [
    ("host case", "s3://Bucket/key", "s3://bucket/key"),
    ("default port", "https://host:443/key", "https://host/key"),
    ("slashes inside the path", "s3://bucket//key", "s3://bucket/key"),
    ("dot segments", "s3://bucket/a/../key", "s3://bucket/key"),
    ("percent-encoded letter in the path", "s3://bucket/%41", "s3://bucket/A"),
    ("percent-encoded slash", "s3://bucket/a%2Fb", "s3://bucket/a/b"),
    ("user", "s3://user@bucket/key", "s3://bucket/key"),
    ("non-ASCII host and its ASCII form", "https://b\u00fccher.example/key", "https://xn--bcher-kva.example/key"),
    ("x- scheme case", "X-Queue://name", "x-queue://name"),
    ("x- scheme slash at the end", "x-queue://name/", "x-queue://name"),
    ("text without a scheme", "Orders/", "Orders"),
]


@pytest.mark.parametrize(("what", "left", "right"), SAME, ids=[row[0] for row in SAME])
def test_spellings_of_one_asset(what: str, left: str, right: str) -> None:
    assert normalise_uri(left) == normalise_uri(right)


@pytest.mark.parametrize(("what", "left", "right"), DIFFERENT, ids=[row[0] for row in DIFFERENT])
def test_different_assets(what: str, left: str, right: str) -> None:
    assert normalise_uri(left) != normalise_uri(right)


def test_the_documented_table_is_this_one() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "assets.md").read_text()
    for what, *_ in [*SAME, *DIFFERENT]:
        assert re.search(rf"^\| {re.escape(what)} \|", text, re.MULTILINE), f"docs/assets.md has no row {what!r}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "blank"),
        (" \t ", "blank"),
        ("a" * 1501, "1501 characters"),
        ("s3://bucket/a\nb", r"control character \(U\+000A\)"),
        ("s3://bucket/a\0b", r"control character \(U\+0000\)"),
        (" s3://bucket", "white space"),
        ("s3://bucket/\ud800", "surrogate"),
        ("airflow://dags/x", "reserved"),
        ("AIRFLOW://dags/x", "reserved"),
        ("s3://user:pa/ss@bucket/key", "quote"),
    ],
)
def test_refused(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        identify(name=None, uri=value)
    assert "pa/ss" not in str(caught.value)


def test_length_limit_is_inclusive() -> None:
    assert identify(name="a" * 1500, uri=None).uri == "a" * 1500


def test_neither_name_nor_uri() -> None:
    with pytest.raises(TypeError, match="a name, a uri, or both"):
        identify(name=None, uri=None)


@pytest.mark.parametrize("name", ["self", "context"])
def test_reserved_names(name: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        identify(name=name, uri=None)


def test_name_keeps_its_spelling_but_loses_the_password() -> None:
    found = identify(name=None, uri="S3://user:secret@bucket/key/?b=1&a=2")
    assert found.name == "S3://user@bucket/key/?b=1&a=2"
    assert found.uri == "s3://user@bucket/key?a=2&b=1"
    assert found.password_dropped


def test_a_name_that_is_a_uri_loses_its_password_too() -> None:
    found = identify(name="s3://user:secret@bucket/key", uri=None)
    assert "secret" not in found.name + found.uri


@pytest.mark.parametrize(
    "uri", ["s3://u:a@b:c@bucket/k", "s3://:secret@bucket", "x-q://u:secret@h", "//u:secret@h/p", "s3://u:s:t@h"]
)
def test_passwords_of_odd_shape(uri: str) -> None:
    found = identify(name=None, uri=uri)
    assert found.password_dropped
    for part in ("secret", "a@b", "s:t"):
        assert part not in found.uri
        assert part not in found.name


def test_an_empty_password_is_no_secret() -> None:
    assert not identify(name=None, uri="s3://user:@bucket").password_dropped


_PIECES = st.sampled_from(
    [
        "s3",
        "S3",
        "x-q",
        "file",
        ":",
        "/",
        "//",
        "///",
        "@",
        "?",
        "#",
        "&",
        "=",
        "%41",
        "%2F",
        "%FF",
        "a",
        "B",
        "1",
        ".",
        "é",
        "e\u0301",
        "+",
    ]
)


@given(st.lists(_PIECES, min_size=1, max_size=20).map("".join) | st.text(min_size=1, max_size=60))
def test_normalising_twice_changes_nothing(text: str) -> None:
    try:
        once = normalise_uri(text)
    except ValueError:
        return
    assert normalise_uri(once) == once


@given(
    user=st.text("abc", max_size=3),
    password=st.text("pqr:@%", min_size=1, max_size=8),
    host=st.text("hij", min_size=1, max_size=4),
)
def test_no_password_survives(user: str, password: str, host: str) -> None:
    found = identify(name=None, uri=f"s3://{user}:{password}@{host}/key")
    assert not set("pqr") & set(found.uri.removeprefix("s3://"))
    assert not set("pqr") & set(found.name.removeprefix("s3://"))
