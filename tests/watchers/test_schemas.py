from __future__ import annotations

import json
from typing import Any

import pytest

from watchers.errors import WatcherDeclarationError
from watchers.files import FileEventTrigger
from watchers.schemas import MAX_SCHEMA_BYTES, PayloadSchema, schema_text
from watchers.watcher import AssetWatcher

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (["not", "a", "schema"], "a JSON Schema as a dict, not a list"),
        (True, "a JSON Schema as a dict, not a bool"),
        ({"type": "intt"}, 'schema.type: "intt" breaks'),
        ({"properties": {"a": {"minimum": "3"}}}, 'schema.properties.a.minimum: "3" breaks type: "number"'),
        ({"pattern": "("}, 'schema.pattern: "(" breaks format: "regex"'),
        ({"patternProperties": {"(": {}}}, 'schema.patternProperties: "(" breaks'),
        ({"$id": 5}, 'schema["$id"]: 5 breaks'),
        ({"const": float("nan")}, "schema.const: number that is not finite"),
        ({"const": object()}, "schema.const: object is no JSON value"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, f"larger than {MAX_SCHEMA_BYTES} bytes"),
        ({"$schema": "https://example.com/mine"}, '$schema "https://example.com/mine" is no dialect'),
        ({"$schema": 5}, "$schema 5 is no dialect"),
        ({"$ref": "https://example.com/x.json"}, '$ref "https://example.com/x.json" is not in this schema'),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"items": {"allOf": [{"$ref": "other.json#/a"}]}}, '$ref "other.json#/a" is not in this schema'),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, '$ref "#/$defs/b" leads nowhere'),
        ({"$dynamicRef": "#nowhere"}, '$dynamicRef "#nowhere" leads nowhere'),
        ({"x": 5, "$ref": "#/x"}, "5 breaks"),
        ({"x": {"type": "intt"}, "$ref": "#/x"}, '"intt" breaks'),
        ({"x": {"$ref": "https://example.com/y"}, "$ref": "#/x"}, "https://example.com/y"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"allOf": [{"$ref": "#/allOf/0"}]}, "refers to itself without end"),
    ],
)
def test_a_bad_schema_is_refused_where_it_is_declared(schema: Any, message: str) -> None:
    with pytest.raises(WatcherDeclarationError) as caught:
        AssetWatcher("w", FileEventTrigger("/x"), schema=schema)
    assert str(caught.value).startswith("watcher 'w': schema: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "https://example.com/a value, no reference"}]},
        {"$schema": DRAFT_7, "definitions": {"a": {}}, "properties": {"q": {"$ref": "#/definitions/a"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://example.com/"},
        {"$defs": {"a": {"$id": "https://example.com/a", "type": "string"}}, "$ref": "https://example.com/a"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$anchor": "node", "properties": {"next": {"$ref": "#node"}}},
    ],
)
def test_a_good_one_is_kept_as_it_was_checked(schema: dict[str, Any]) -> None:
    watcher = AssetWatcher("w", FileEventTrigger("/x"), schema=schema)
    assert watcher.schema == schema
    schema["later"] = "change"
    assert "later" not in (watcher.schema or {})
    hash(watcher)


def test_equal_schemas_have_one_text() -> None:
    one = schema_text({"type": "object", "required": ("a", "é")}, watcher="w")
    assert one == schema_text({"required": ["a", "é"], "type": "object"}, watcher="w")
    assert one.isascii()


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "integer"}, 1, None),
        ({"type": "integer"}, True, 'payload: breaks type: "integer" (schema /type)'),
        ({"properties": {"id": {"type": "integer"}}}, {"id": "pw"}, 'payload.id: breaks type: "integer" (schema /prop'),
        ({"required": ["id", "at"]}, {"at": 1}, 'payload: lacks "id" (schema /required)'),
        ({"items": {"minimum": 3}}, [3, 1], "payload[1]: breaks minimum: 3 (schema /items/minimum)"),
        ({"additionalProperties": False}, {"pw": "pw"}, "payload: breaks additionalProperties: false"),
        (
            {"properties": {"a/b": {"pattern": "^x"}}},
            {"a/b": "pw"},
            'payload["a/b"]: breaks pattern: "^x" (schema /prop',
        ),
        ({"format": "date-time"}, "not a moment", None),
        ({"$schema": DRAFT_7, "type": "string"}, 1, "payload: breaks"),
    ],
)
def test_a_refusal_names_place_and_rule_and_no_contents(schema: Any, value: Any, reason: str | None) -> None:
    found = PayloadSchema(schema_text(schema, watcher="w")).refusal(value)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(reason)
        assert '"pw"' not in found


def test_the_deepest_payload_can_be_checked_by_a_schema_of_itself() -> None:
    schema = PayloadSchema(schema_text({"properties": {"next": {"$ref": "#"}, "end": {"type": "null"}}}, watcher="w"))
    value: dict[str, Any] = {"end": 1}
    for _ in range(99):
        value = {"next": value}
    assert "breaks type: " in str(schema.refusal(value))
    assert schema.refusal(json.loads('{"next": {"end": null}}')) is None
    deeper: Any = 1
    for _ in range(3_000):
        deeper = {"next": deeper}
    assert schema.refusal(deeper) == "payload: nested too deep for its schema"
