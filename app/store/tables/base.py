"""Column kinds shared by the schema."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Identity, MetaData, func
from sqlalchemy.dialects.postgresql import JSON

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: Always ``json``, never ``jsonb``: a payload keeps NUL characters, key order and number spelling.
Json = JSON(none_as_null=True)
Moment = DateTime(timezone=True)


def key() -> Column[int]:
    """A generated 64-bit primary key."""
    return Column("id", BigInteger, Identity(), primary_key=True)


def moment(name: str, *, nullable: bool = True) -> Column[Any]:
    """A point in time with time zone."""
    return Column(name, Moment, nullable=nullable)


def created(name: str = "created_at") -> Column[Any]:
    """When the row was made, by the database's clock."""
    return Column(name, Moment, nullable=False, server_default=func.now())


def one_of(column: str, states: Iterable[StrEnum], *, name: str) -> CheckConstraint:
    """The column holds one of the enum's values."""
    listed = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({listed})", name=name)


def exactly_when(final: str, states: Iterable[StrEnum], column: str, *, name: str) -> CheckConstraint:
    """``column`` is set exactly while ``final`` holds one of ``states``."""
    listed = ", ".join(f"'{state.value}'" for state in sorted(states))
    return CheckConstraint(f"({final} IN ({listed})) = ({column} IS NOT NULL)", name=name)
