"""Filters, order and pages, the same for every list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection


class UnknownOrder(ValueError):
    """``order_by`` names an attribute that the list cannot be ordered by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """Which part of a list, in which order. ``order_by`` names attributes; a leading ``-`` means descending."""

    limit: int = 50
    offset: int = 0
    order_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows of one page and how many there are in all."""

    rows: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    total: int = 0


async def read_page(
    connection: AsyncConnection,
    statement: Select[Any],
    *,
    paging: Paging,
    columns: Mapping[str, ColumnElement[Any]],
    default: Sequence[ColumnElement[Any]],
    tie: ColumnElement[Any],
) -> Page:
    """The page of ``statement``. ``tie`` is unique: with it last, paging is stable under equal values."""
    order = [_ordered(name, columns) for name in paging.order_by] or list(default)
    total = await connection.scalar(select(func.count()).select_from(statement.order_by(None).subquery()))
    chosen = statement.order_by(*order, tie).limit(paging.limit).offset(paging.offset)
    rows = (await connection.execute(chosen)).mappings().all()
    return Page(rows=[dict(row) for row in rows], total=int(total or 0))


def _ordered(name: str, columns: Mapping[str, ColumnElement[Any]]) -> ColumnElement[Any]:
    column = columns.get(name.removeprefix("-"))
    if column is None:
        raise UnknownOrder(f"cannot order by {name!r}; known: {', '.join(sorted(columns))}")
    return column.desc().nulls_last() if name.startswith("-") else column.asc().nulls_first()


def matches(column: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
    """The field's ``*_pattern`` filters: case-insensitive "contains", ``%`` and ``_`` as in SQL, ``|`` separates
    alternatives, ``~`` is everything."""
    if pattern == "~":
        return column.is_not(None)
    # A backslash is no escape here: it stands for itself.
    alternatives = [part.strip().replace("\\", "\\\\") for part in pattern.split("|") if part.strip()]
    return or_(*(column.ilike(f"%{part}%") for part in alternatives)) if alternatives else column.is_(None)


def starts_with(column: ColumnElement[Any], prefix: str) -> ColumnElement[bool]:
    """The field's ``*_prefix_pattern`` filters: case-sensitive prefix that an index can serve; no wildcards."""
    return column.startswith(prefix, autoescape=True)
