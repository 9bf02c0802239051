from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchers.masking import mask_texts, masker_for, redact_source, redact_uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see kafka://user:pw@host/q.", "see kafka://user:***@host/q."),
        ("a+b://u:p:w@x@host", "a+b://u:***@host"),
        ("redis://:pw@host and amqp://u:p@h2", "redis://:***@host and amqp://u:***@h2"),
        ("kafka://u:p/w#'d@host/q", "kafka://u:***@host/q"),
        ("1http://u:pw@host", "1http://u:***@host"),
        ("kafka://h1:9092,h2:9092/topic", "kafka://h1:9092,h2:9092/topic"),
        ("http://host:80/mail/a@b", "http://host:80/mail/a@b"),
        ("http://user@host/a:b@c", "http://user@host/a:b@c"),
        ("http://host:80/x", "http://host:80/x"),
    ],
)
def test_passwords_in_uris_are_always_masked(text: str, expected: str) -> None:
    assert redact_uri(text) == expected
    assert mask_texts([])(text) == expected


def test_the_texts_of_kwargs_are_masked_wherever_they_are() -> None:
    kwargs: dict[str, Any] = {
        "token": "s3cr3t-token",
        "nested": {"name": [("deep-secret", {b"byte-secret"})], "other": Path("/secret/place")},
        "queue": "my-queue",
        "number": 12345,
    }
    mask = masker_for(kwargs, {"queue"})
    line = "s3cr3t-token deep-secret byte-secret /secret/place my-queue 12345 name"
    assert mask(line) == "*** *** *** *** my-queue 12345 name"


def test_a_public_uri_loses_only_its_password() -> None:
    mask = masker_for({"queue": "kafka://user:swordfish@host/q"}, {"queue"})
    assert mask("kafka://user:swordfish@host/q refused swordfish") == "kafka://user:***@host/q refused ***"


def test_short_texts_are_masked_alone_and_very_short_ones_never() -> None:
    mask = masker_for({"a": "abc", "b": "x", "c": ""})
    assert mask("abc abcd xabc x=abc, x") == "*** abcd xabc x=***, x"


def test_a_secret_inside_another_leaves_nothing_of_it() -> None:
    assert mask_texts(["secret", "secret-longer"])("secret-longer secret") == "*** ***"


def test_quoted_forms_and_single_lines_are_recognised() -> None:
    secret = 'pa"ss/wo\\rd é%'
    mask = mask_texts([secret, "-----BEGIN\nline of key\n-----END"])
    for form in (secret, repr(secret), json.dumps(secret), quote(secret, safe=""), "key: line of key"):
        assert "***" in mask(f"error: {form}!")
        assert "wo" not in mask(form).replace("***", "")
    assert mask("-----BEGIN") == "***"


def test_a_cycle_is_no_trouble() -> None:
    cycle: list[Any] = ["in-a-cycle"]
    cycle.append(cycle)
    assert masker_for({"x": cycle})("in-a-cycle") == "***"


@pytest.mark.parametrize("text", ["x" * 300_000, "://" * 100_000, "://u:" * 60_000, "://u:" + "p" * 300_000])
def test_a_long_text_is_no_trouble(text: str) -> None:
    started = time.perf_counter()
    redact_uri(text)
    assert time.perf_counter() - started < 5


@given(st.lists(st.text(st.characters(exclude_categories=()), min_size=6)), st.text())
def test_no_masked_text_is_left(secrets: list[str], around: str) -> None:
    mask = mask_texts(secrets)
    for secret in secrets:
        assert secret not in mask(f"{around} {secret} {around}").replace("***", "\0") or secret in "******"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Kafka(sasl_password="hunter2", topics="t")', 'Kafka(sasl_password="***", topics="t")'),
        ("{'api_key': 'it\\'s', 'n': 'x'}", "{'api_key': '***', 'n': 'x'}"),
        ('API_TOKEN = b"abc"; SECRET: str = f(x)', 'API_TOKEN = b"***"; SECRET: str = f(x)'),
        ("password=get_variable('name')", "password=get_variable('name')"),
        ('token=""', 'token=""'),
        ("x('amqp://u:p@h')", "x('amqp://u:***@h')"),
    ],
)
def test_texts_under_telling_names_are_masked_in_source(text: str, expected: str) -> None:
    assert redact_source(text) == expected


def test_masking_source_takes_no_time_whatever_the_text() -> None:
    started = time.monotonic()
    for text in ("token" * 20_000, 'password="' * 10_000, "secret" + " " * 100_000 + "='x'"):
        redact_source(text)
    assert time.monotonic() - started < 20
