"""What options of commands hold: each function refuses a wrong value with a sentence (exit status 2)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import typer


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    value = _json(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f'a JSON object is needed, such as {{"key": 1}}, not {_kind(value)}')
    return value


def json_text(text: str) -> str:
    """Any JSON value, as the text that was given."""
    _json(text)
    return text


def json_objects(text: str) -> list[dict[str, Any]]:
    """A JSON object, or an array of them."""
    value = _json(text)
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(member, dict) for member in values):
        raise typer.BadParameter(f"a JSON object is needed, or an array of objects, not {_kind(value)}")
    return values


def moment(text: str) -> datetime:
    """A point in time with its offset."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no moment; write it as 2026-01-31T12:00:00+00:00") from None
    if value.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no offset, so it names no moment; add one, such as +00:00")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"no JSON: {error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _kind(value: object) -> str:
    names = {list: "an array", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else "an object")
