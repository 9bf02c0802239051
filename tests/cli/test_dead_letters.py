"""`tidegate dead-letters`: what the API does, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Tidegate
from tests.triggerer.world import World

InWorld = Callable[..., Any]
STRICT = {"type": "object", "required": ["id"]}


async def letters(world: World) -> None:
    """Letters 1 to 3 of a strict asset, the last without payload."""
    asset = await world.asset("strict")
    await world.dag("d", asset)
    trigger = await world.trigger(asset, schema=STRICT)
    await world.value(
        """
        INSERT INTO dead_letter (trigger_id, asset_id, source, key, code, reason, raw, raw_size, payload)
        VALUES ($1, $2, 's', 'a', 'schema', 'lacks', '{"no": 1}', 9, '{"no": 1}'),
               ($1, $2, 's', 'b', 'schema', 'lacks', 'x', 1, '{"id": 2}'),
               ($1, NULL, 't', 'c', 'size', 'large', '\\xff', 5, NULL)
        """,
        trigger,
        asset,
    )


async def payloads(world: World) -> list[Any]:
    """Payloads of all events."""
    rows = await world.fetch("SELECT b.extra FROM asset_event e JOIN event_body b ON b.id = e.body_id ORDER BY e.id")
    return [json.loads(row["extra"])["payload"] for row in rows]


def test_letters_are_listed_and_shown(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(letters)
    rows = tidegate("dead-letters", "list", "-o", "json").rows
    assert [(row["id"], row["state"], row["code"], row["asset_name"]) for row in rows] == [
        (3, "held", "size", None), (2, "held", "schema", "strict"), (1, "held", "schema", "strict"),
    ]  # fmt: skip
    for options, found in (
        (["--code", "size"], [3]),
        (["--asset", "strict", "--key", "a"], [1]),
        (["--source", "t", "--trigger-id", "1", "--state", "held"], [3]),
        (["--before", "2020-01-01T00:00:00+00:00"], []),
    ):
        assert [row["id"] for row in tidegate("dead-letters", "list", *options, "-o", "json").rows] == found
    assert "strict" in tidegate("dead-letters", "list").out
    shown = tidegate("dead-letters", "show", "1", "-o", "json").rows
    assert (shown["payload"], shown["raw_text"], shown["raw_truncated"]) == ({"no": 1}, '{"no": 1}', False)
    assert "raw_truncated  yes" in tidegate("dead-letters", "show", "3").out
    assert tidegate("dead-letters", "show", "9").err == "error: There is no dead letter 9.\n"
    assert tidegate("dead-letters", "show", "1", "--raw").out == '{"no": 1}'


def test_letters_are_requeued(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(letters)
    ended = tidegate("dead-letters", "requeue", "--code", "schema", "-o", "json")
    assert ended.status == 1
    assert [(row["id"], row["outcome"], row["created"]) for row in ended.rows] == [
        (1, "refused", None), (2, "requeued", 1),
    ]  # fmt: skip
    assert 'payload: lacks "id"' in ended.rows[0]["detail"]
    ended = tidegate("dead-letters", "requeue", "1", "--payload", '{"id": 1}')
    assert (ended.status, "requeued" in ended.out) == (0, True)
    assert in_world(payloads) == [{"id": 2}, {"id": 1}]
    assert "was requeued at" in tidegate("dead-letters", "requeue", "1", "-o", "json").rows[0]["detail"]
    assert "Only 1 of 5 bytes" in tidegate("dead-letters", "requeue", "3", "-o", "json").rows[0]["detail"]


def test_a_payload_over_the_limit_names_both_numbers(
    tidegate: Tidegate, in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_MAX_PAYLOAD_BYTES", "1024")
    in_world(letters)
    ended = tidegate("dead-letters", "requeue", "1", "--payload", json.dumps({"id": "x" * 1024}))
    assert (ended.status, ended.err) == (1, "error: the payload has 1033 bytes of JSON text; the limit is 1024.\n")
    ended = tidegate("assets", "emit", "strict", "--extra", json.dumps({"id": "x" * 1024}))
    assert ended.err == "error: extra has 1033 bytes of JSON text; the limit is 1024.\n"


def test_letters_are_deleted(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(letters)
    ended = tidegate("dead-letters", "delete", "1", "9", "-o", "json")
    assert (ended.status, [row["outcome"] for row in ended.rows]) == (1, ["deleted", "refused"])
    assert tidegate("dead-letters", "delete", "--state", "held", "--limit", "1").status == 0
    assert [row["id"] for row in tidegate("dead-letters", "list", "-o", "json").rows] == [3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["requeue"], "name letters by id, or choose them by options"),
        (["delete"], "name letters by id, or choose them by options"),
        (["delete", "1", "--code", "size"], "name letters by id, or choose them by options"),
        (["requeue", "1", "2", "--payload", "1"], "a payload is for one letter"),
        (["requeue", "1", "--payload", "{"], "no JSON"),
        (["requeue", "x"], "valid integer"),
        (["show", "-1"], "-1"),
    ],
)
def test_wrong_options_exit_with_a_sentence(tidegate: Tidegate, arguments: list[str], said: str) -> None:
    ended = tidegate("dead-letters", *arguments)
    assert (ended.status, said in " ".join(ended.err.replace("│", " ").split())) == (2, True), ended.err
