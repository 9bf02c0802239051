"""The API as its description tells it: every reading operation with values for every parameter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema

from app.interfaces.http.describe import description

DOCUMENT: dict[str, Any] = json.loads(description())


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    parameters: tuple[Mapping[str, Any], ...]
    responses: Mapping[str, Any]
    secured: bool

    def names(self, place: str) -> list[str]:
        """Its parameters in ``path`` or ``query``."""
        return [parameter["name"] for parameter in self.parameters if parameter["in"] == place]

    def check(self, status: int, content: Any) -> None:
        """Fails unless the answer is as described."""
        described = self.responses.get(str(status))
        assert described is not None, f"{self.method} {self.path} answered {status}, which is not described: {content}"
        schema = described.get("content", {}).get("application/json", {}).get("schema")
        if schema is not None:
            jsonschema.Draft202012Validator(
                {**schema, "components": DOCUMENT["components"]},
                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
            ).validate(content)


def operations() -> list[Operation]:
    """All that is described."""
    return [
        Operation(
            method=method,
            path=path,
            parameters=tuple(described.get("parameters", ())),
            responses=described["responses"],
            secured="security" in described,
        )
        for path, methods in DOCUMENT["paths"].items()
        for method, described in methods.items()
    ]


def values(parameter: Mapping[str, Any]) -> Iterator[Any]:
    """Some good values of a query parameter."""
    for schema in _alternatives(parameter["schema"]):
        kind = schema.get("type")
        if "enum" in schema:
            yield from schema["enum"]
        elif kind == "boolean":
            yield from ("true", "false")
        elif kind == "integer":
            yield from (max(schema.get("minimum", 0), 0), 1, min(schema.get("maximum", 10**6), 10**6))
        elif schema.get("format") == "date-time":
            yield from ("2026-01-01T00:00:00Z", "2100-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z")
        elif kind == "string":
            yield from ("a%|_b|ü", "~", "\\")


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in schema:
        yield from _alternatives(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    elif "anyOf" in schema:
        for member in schema["anyOf"]:
            yield from _alternatives(member)
    elif schema.get("type") == "array":
        yield from _alternatives(schema["items"])
    else:
        yield schema
