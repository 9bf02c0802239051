"""Statements on the links between assets and triggers, and on which files declare them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.reconcile import KnownLink, LinkUpdate
from app.domain.specs import AssetKey
from app.store.expressions import among
from app.store.tables import asset, asset_watcher, asset_watcher_source, trigger


async def read_links(connection: AsyncConnection, asset_ids: Collection[int], *, file_path: str) -> list[KnownLink]:
    """The links of the assets, and those that the file declares wherever they are."""
    here = asset_watcher_source.alias("here")
    elsewhere = (
        select(func.count())
        .select_from(asset_watcher_source)
        .where(asset_watcher_source.c.watcher_id == asset_watcher.c.id, asset_watcher_source.c.file_path != file_path)
        .scalar_subquery()
    )
    statement = (
        select(
            asset_watcher.c.id,
            asset_watcher.c.name,
            asset_watcher.c.trigger_id,
            asset_watcher.c.when_expression,
            asset_watcher.c.payload_schema,
            asset.c.name.label("asset_name"),
            asset.c.uri,
            trigger.c.identity,
            here.c.bundle_digest,
            elsewhere.label("other_files"),
        )
        .join(asset, asset.c.id == asset_watcher.c.asset_id)
        .join(trigger, trigger.c.id == asset_watcher.c.trigger_id)
        .outerjoin(here, and_(here.c.watcher_id == asset_watcher.c.id, here.c.file_path == file_path))
        .where(or_(among(asset_watcher.c.asset_id, asset_ids), here.c.file_path.is_not(None)))
        .order_by(asset_watcher.c.id)
    )
    return [
        KnownLink(
            watcher_id=row.id,
            asset=AssetKey(name=row.asset_name, uri=row.uri),
            name=row.name,
            identity=row.identity,
            trigger_id=row.trigger_id,
            when=row.when_expression,
            schema=row.payload_schema,
            bundle_digest=row.bundle_digest,
            other_files=row.other_files,
        )
        for row in await connection.execute(statement)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLink:
    """A link to insert, with its filter and the text of its schema."""

    asset_id: int
    trigger_id: int
    name: str
    when: str | None
    schema: str | None


async def insert_links(connection: AsyncConnection, links: Sequence[NewLink]) -> list[int]:
    """Link triggers to assets; the ids of the links, in their order."""
    rows = [
        {
            "asset_id": link.asset_id,
            "trigger_id": link.trigger_id,
            "name": link.name,
            "when_expression": link.when,
            "payload_schema": link.schema,
        }
        for link in links
    ]
    statement = insert(asset_watcher).returning(asset_watcher.c.id, sort_by_parameter_order=True)
    return list((await connection.execute(statement, rows)).scalars())


async def update_links(connection: AsyncConnection, changes: Sequence[LinkUpdate]) -> None:
    """Give links other names, filters and schemas; their triggers go on."""
    statement = (
        update(asset_watcher)
        .where(asset_watcher.c.id == bindparam("watcher_id"))
        .values(
            name=bindparam("new_name"),
            when_expression=bindparam("new_when"),
            payload_schema=bindparam("new_schema"),
        )
    )
    await connection.execute(
        statement,
        [
            {
                "watcher_id": each.watcher_id,
                "new_name": each.name,
                "new_when": each.when,
                "new_schema": each.schema,
            }
            for each in changes
        ],
    )


async def declare_links(connection: AsyncConnection, declared: Mapping[int, str], *, file_path: str) -> None:
    """Note that the file declares the links, each in the code version given."""
    row = upsert(asset_watcher_source)
    statement = row.on_conflict_do_update(
        index_elements=[asset_watcher_source.c.watcher_id, asset_watcher_source.c.file_path],
        set_={"bundle_digest": row.excluded.bundle_digest},
    )
    await connection.execute(
        statement,
        [
            {"watcher_id": watcher_id, "file_path": file_path, "bundle_digest": digest}
            for watcher_id, digest in sorted(declared.items())
        ],
    )


async def end_declarations(connection: AsyncConnection, watcher_ids: Collection[int], *, file_path: str) -> None:
    """Note that the file declares the links no more."""
    statement = delete(asset_watcher_source).where(
        among(asset_watcher_source.c.watcher_id, watcher_ids), asset_watcher_source.c.file_path == file_path
    )
    await connection.execute(statement)


async def delete_undeclared(connection: AsyncConnection, watcher_ids: Collection[int]) -> list[int]:
    """Delete those of the links that no file declares; the ids of their triggers."""
    declared = select(asset_watcher_source.c.watcher_id).where(asset_watcher_source.c.watcher_id == asset_watcher.c.id)
    statement = (
        delete(asset_watcher)
        .where(among(asset_watcher.c.id, watcher_ids), ~declared.exists())
        .returning(asset_watcher.c.trigger_id)
    )
    return list((await connection.execute(statement)).scalars())


async def read_linked_triggers(connection: AsyncConnection, asset_ids: Collection[int]) -> set[int]:
    """The triggers linked to the assets."""
    statement = select(asset_watcher.c.trigger_id).where(among(asset_watcher.c.asset_id, asset_ids))
    return set((await connection.execute(statement)).scalars())
