"""Statements that find an asset by what callers call it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.store.database import HotConnection


class NamedAsset(msgspec.Struct, frozen=True, kw_only=True):
    """An asset as callers know it."""

    asset_id: int
    name: str
    uri: str
    group: str


async def find_named_active(
    hot: HotConnection,
    *,
    asset_id: Sequence[int] | None,
    name: Sequence[str] | None,
    uri: Sequence[str] | None,
) -> list[NamedAsset]:
    """The active assets with one of these; at most three. Each condition has an index of its own."""
    rows = await hot.fetch(
        """
        SELECT id, name, uri, group_name FROM asset
        WHERE is_active AND (id = ANY($1::bigint[]) OR name = ANY($2::text[]) OR uri = ANY($3::text[]))
        """,
        asset_id,
        name,
        uri,
    )
    return [NamedAsset(asset_id=row[0], name=row[1], uri=row[2], group=row[3]) for row in rows]


async def find_named(
    hot: HotConnection,
    *,
    asset_id: Sequence[int] | None,
    name: Sequence[str] | None,
    uri: Sequence[str] | None,
) -> list[NamedAsset]:
    """All assets with one of these, active or not: to tell why none is meant."""
    rows = await hot.fetch(
        """
        SELECT id, name, uri, group_name FROM asset
        WHERE id = ANY($1::bigint[]) OR name = ANY($2::text[]) OR uri = ANY($3::text[]) ORDER BY is_active DESC, id
        """,
        asset_id,
        name,
        uri,
    )
    return [NamedAsset(asset_id=row[0], name=row[1], uri=row[2], group=row[3]) for row in rows]
