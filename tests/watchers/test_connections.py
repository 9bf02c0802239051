from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchers import connections
from watchers.connections import Connection, get_connection, get_variable
from watchers.errors import ConnectionMalformed, ConnectionNotFound, VariableNotFound


def parts(connection: Connection) -> dict[str, Any]:
    names = ("conn_type", "host", "port", "login", "password", "schema", "extra")
    return {name: value for name in names if (value := getattr(connection, name)) not in (None, {})}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kafka://us%40er:p%3A%2F%40ss@broker:9093/top%2Fic?security_protocol=SASL_SSL&empty=",
            {
                "conn_type": "kafka",
                "host": "broker",
                "port": 9093,
                "login": "us@er",
                "password": "p:/@ss",
                "schema": "top/ic",
                "extra": {"security_protocol": "SASL_SSL", "empty": ""},
            },
        ),
        ("aws://", {"conn_type": "aws"}),
        ("google-cloud-platform://?x=1", {"conn_type": "google_cloud_platform", "extra": {"x": "1"}}),
        ("http://a:b@https://host:80/x", {"conn_type": "http", "host": "https://host", "port": 80, "login": "a",
                                          "password": "b", "schema": "x"}),
        ("redis://[::1]:6379", {"conn_type": "redis", "host": "::1", "port": 6379}),
        ("redis://%2Ftmp%2Fsock", {"conn_type": "redis", "host": "/tmp/sock"}),
        ("x://:secret@h", {"conn_type": "x", "password": "secret", "host": "h"}),
        ("x://h?__extra__=%7B%22a%22%3A%20%5B1%5D%7D", {"conn_type": "x", "host": "h", "extra": {"a": [1]}}),
        (' {"conn_type": "Aws", "login": "l", "password": "p", "port": "99", "extra": "{\\"r\\": true}"} ',
         {"conn_type": "aws", "login": "l", "password": "p", "port": 99, "extra": {"r": True}}),
        ('{"extra": {"r": 1}, "description": "mine", "host": null}', {"conn_type": "", "extra": {"r": 1}}),
    ],
)  # fmt: skip
def test_both_forms_are_read(text: str, expected: dict[str, Any]) -> None:
    assert parts(Connection.from_text("c", text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        "://hunter2",
        "x://hunter2:99999999",
        "x://h:hunter2",
        "x://[::1hunter2",
        "x://h?__extra__=hunter2",
        '{"hunter2',
        '{"password": 2}',
        '{"conn_type": 3}',
        '{"surprise": "hunter2"}',
        '{"extra": "hunter2"}',
        '{"extra": [1]}',
        '{"port": "hunter2"}',
    ],
)
def test_what_cannot_be_read_shows_nothing_of_itself(text: str) -> None:
    with pytest.raises(ConnectionMalformed, match="connection 'c'") as caught:
        Connection.from_text("c", text)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for form in (text, "x://" + text, json.dumps({"extra": text})):
        try:
            Connection.from_text("c", form)
        except ConnectionMalformed:
            continue


def test_secrets_are_not_shown() -> None:
    shown = repr(Connection(conn_id="c", login="me", password="hunter2", extra={"key": "hunter3"}))
    assert "hunter" not in shown
    assert "me" in shown


def test_the_environment_is_asked_ours_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MY_QUEUE", "x://field")
    assert get_connection("my_queue").host == "field"
    monkeypatch.setenv("TIDEGATE_CONN_MY_QUEUE", "x://ours")
    assert get_connection("my_queue").host == "ours"
    monkeypatch.setenv("AIRFLOW_VAR_COLOUR", "red")
    assert get_variable("colour") == "red"
    monkeypatch.setenv("TIDEGATE_VAR_COLOUR", "")
    assert get_variable("colour") == ""


def test_what_is_missing_says_how_to_configure_it() -> None:
    with pytest.raises(ConnectionNotFound, match="TIDEGATE_CONN_NOT_THERE"):
        get_connection("not_there")
    with pytest.raises(VariableNotFound, match="TIDEGATE_VAR_NOT_THERE"):
        get_variable("not_there")
    assert get_variable("not_there", None) is None


def test_the_resolver_can_be_replaced() -> None:
    stored = Connection(conn_id="db")
    before = connections.set_connection_resolver({"db": stored}.get)
    variables = connections.set_variable_resolver({"k": "v"}.get)
    try:
        assert get_connection("db") is stored
        assert get_variable("k") == "v"
    finally:
        connections.set_connection_resolver(before)
        connections.set_variable_resolver(variables)
    with pytest.raises(ConnectionNotFound):
        get_connection("db")
