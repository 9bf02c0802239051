"""Expressions that statements of several stages need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, any_, literal


def among(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """``column`` is one of ``values``, passed as one array so that the statement's text is always the same."""
    array: Any = literal(list(values), ARRAY(column.type))
    return column == any_(array)
