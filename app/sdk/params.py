"""Params: values of a DAG that a run may override through its ``conf``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.domain.json_values import json_value
from app.sdk.identifiers import checked_identifier


class Param:
    """A param with a default and a description. ``schema`` (JSON Schema words) is kept for the reader."""

    def __init__(self, default: Any = None, description: str | None = None, **schema: Any) -> None:
        self.value = default
        self.description = description
        self.schema = schema


def param_values(params: Mapping[str, Any]) -> dict[str, Any]:
    """Names and default values. Raises :class:`TypeError` for a value that is not JSON, with its place."""
    values: dict[str, Any] = {}
    for name, param in params.items():
        checked_identifier(name, "the name of a param")
        values[name] = json_value(param.value if isinstance(param, Param) else param, f"params[{name!r}]")
    return values
