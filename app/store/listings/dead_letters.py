"""Messages that could not become events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Text, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.states import DeadLetterState
from app.store.listings.paging import Page, Paging, read_page
from app.store.tables import asset, dead_letter

_SHOWN = (
    "id",
    "trigger_id",
    "asset_id",
    "source",
    "key",
    "code",
    "reason",
    "raw_size",
    "state",
    "requeued_at",
    "created_at",
)
_ORDER = {name: dead_letter.c[name] for name in (*_SHOWN[:6], *_SHOWN[7:])}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters; None means any."""

    trigger_id: int | None = None
    asset_id: int | None = None
    asset_name: str | None = None
    code: str | None = None
    source: str | None = None
    key: str | None = None
    state: DeadLetterState | None = None
    created_at_gt: datetime | None = None
    created_at_gte: datetime | None = None
    created_at_lt: datetime | None = None
    created_at_lte: datetime | None = None


async def list_dead_letters(connection: AsyncConnection, paging: Paging, *, chosen: LetterFilter) -> Page:
    """Letters, newest first; neither the kept bytes nor the payload are part of the list."""
    return await read_page(
        connection,
        _filtered(_dead_letters(), chosen),
        paging=paging,
        columns=_ORDER,
        default=[dead_letter.c.id.desc()],
        tie=dead_letter.c.id,
    )


async def read_dead_letter(connection: AsyncConnection, letter_id: int) -> Mapping[str, Any] | None:
    """One letter with the bytes that were kept (``raw``) and the payload as JSON text."""
    statement = (
        _dead_letters()
        .add_columns(dead_letter.c.raw, cast(dead_letter.c.payload, Text).label("payload_text"))
        .where(dead_letter.c.id == letter_id)
    )
    row = (await connection.execute(statement)).mappings().first()
    return dict(row) if row else None


async def ids_of(connection: AsyncConnection, *, chosen: LetterFilter, limit: int) -> list[int]:
    """Ids of up to ``limit`` letters, oldest first."""
    letters = select(dead_letter.c.id).outerjoin(asset, asset.c.id == dead_letter.c.asset_id)
    statement = _filtered(letters, chosen).order_by(dead_letter.c.id).limit(limit)
    return list((await connection.execute(statement)).scalars())


def _dead_letters() -> Select[Any]:
    kept = func.octet_length(dead_letter.c.raw)
    return select(
        *(dead_letter.c[name] for name in _SHOWN),
        func.coalesce(dead_letter.c.event_ids, []).label("event_ids"),
        func.coalesce(kept < dead_letter.c.raw_size, False).label("raw_truncated"),
        dead_letter.c.payload.is_not(None).label("has_payload"),
        asset.c.name.label("asset_name"),
    ).outerjoin(asset, asset.c.id == dead_letter.c.asset_id)


def _filtered(statement: Select[Any], chosen: LetterFilter) -> Select[Any]:
    for name in ("trigger_id", "asset_id", "code", "source", "key", "state"):
        if (value := getattr(chosen, name)) is not None:
            statement = statement.where(dead_letter.c[name] == value)
    if chosen.asset_name is not None:
        statement = statement.where(asset.c.name == chosen.asset_name)
    moment = dead_letter.c.created_at
    bounds = [
        (chosen.created_at_gt, moment.__gt__),
        (chosen.created_at_gte, moment.__ge__),
        (chosen.created_at_lt, moment.__lt__),
        (chosen.created_at_lte, moment.__le__),
    ]
    for bound, compare in bounds:
        if bound is not None:
            statement = statement.where(compare(bound))
    return statement
