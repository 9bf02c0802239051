"""XCom values as JSON for readers of other languages.

An XCom is stored so that a task reads it back with its type (``watchers.encoding``). Here it is shown as plain JSON,
without importing anybody's classes:

===================================  ===============================================================================
stored                               shown
===================================  ===============================================================================
what JSON has                        itself
``tuple``, ``set``, ``frozenset``    array
``dict`` with other keys than text   array of ``[key, value]``
``bytes``                            ``{"__type__": "bytes", "base64": "…"}``, as in payloads
``datetime date time``               ISO 8601 text
``timedelta``                        seconds
``Decimal``, ``UUID``, paths         text
``int`` beyond 64 bits               decimal text
``nan inf -inf``                     that text
``enum`` member; combined flag       ``package.module.Color.RED``; its value
===================================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

_TAG = "__type__"


def shown_value(stored: Any) -> Any:
    """The plain JSON of a stored XCom (its JSON form, decoded). What is in no known form is shown as it is."""
    if isinstance(stored, list):
        return [shown_value(member) for member in stored]
    if not isinstance(stored, dict):
        return stored
    rule = _RULES.get(stored[_TAG]) if isinstance(stored.get(_TAG), str) else None
    if rule is None:
        return {key: shown_value(member) for key, member in stored.items()}
    try:
        return rule(stored)
    except (KeyError, TypeError, ValueError):
        return stored


def _verbatim(form: Mapping[str, Any]) -> Any:
    return form["value"]


def _members(form: Mapping[str, Any]) -> Any:
    return [shown_value(member) for member in form["value"]]


def _pairs(form: Mapping[str, Any]) -> Any:
    pairs = [(shown_value(key), shown_value(value)) for key, value in form["value"]]
    # An object whose only oddity is a key that looks like a tag is shown as the object it is.
    return dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else [list(pair) for pair in pairs]


_RULES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("tuple", "set", "frozenset"), _members),
    **dict.fromkeys(("datetime", "date", "time", "Decimal", "UUID", "float", "flag"), _verbatim),
    **dict.fromkeys(("PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"), _verbatim),
    "dict": _pairs,
    "bytes": lambda form: {_TAG: "bytes", "base64": form["value"]},
    "timedelta": lambda form: timedelta(*form["value"]).total_seconds(),
    "int": lambda form: str(int(form["value"], 16)),
    "enum": lambda form: f"{form['enum']}.{form['name']}",
}
