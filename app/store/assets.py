"""Statements on assets and on which DAG uses which."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, func, insert, or_, select, union, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.reconcile import AssetUse, Reference
from app.domain.specs import AssetKey, AssetSpec
from app.store.expressions import among
from app.store.tables import asset, asset_reference, dag


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAsset:
    """An asset row."""

    asset_id: int
    key: AssetKey
    group: str
    extra: dict[str, Any]
    is_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetConflict:
    """A DAG uses an asset that cannot be active, or whose name or uri another used asset wants."""

    dag_id: str
    own: AssetKey
    other: AssetKey
    own_is_active: bool


async def read_neighbourhood(
    connection: AsyncConnection, *, names: Collection[str], uris: Collection[str]
) -> list[StoredAsset]:
    """The assets with one of the names or one of the uris."""
    statement = (
        select(asset.c.id, asset.c.name, asset.c.uri, asset.c.group_name, asset.c.extra, asset.c.is_active)
        .where(or_(among(asset.c.name, names), among(asset.c.uri, uris)))
        .order_by(asset.c.id)
    )
    return [
        StoredAsset(
            asset_id=row.id,
            key=AssetKey(name=row.name, uri=row.uri),
            group=row.group_name,
            extra=row.extra,
            is_active=row.is_active,
        )
        for row in await connection.execute(statement)
    ]


async def read_uses(connection: AsyncConnection, asset_ids: Collection[int]) -> list[AssetUse]:
    """The assets, each with whether an active DAG refers to it."""
    used = (
        select(asset_reference.c.id)
        .join(dag, dag.c.dag_id == asset_reference.c.dag_id)
        .where(asset_reference.c.asset_id == asset.c.id, dag.c.is_active)
        .exists()
    )
    statement = (
        select(asset.c.id, asset.c.name, asset.c.uri, asset.c.is_active, used.label("is_used"))
        .where(among(asset.c.id, asset_ids))
        .order_by(asset.c.id)
    )
    return [
        AssetUse(asset_id=row.id, name=row.name, uri=row.uri, is_active=row.is_active, is_used=row.is_used)
        for row in await connection.execute(statement)
    ]


async def insert_assets(connection: AsyncConnection, specs: Sequence[AssetSpec]) -> dict[AssetKey, int]:
    """Insert assets, not active yet; ids rise in the order given."""
    rows = [
        {"name": spec.name, "uri": spec.uri, "group_name": spec.group, "extra": spec.extra, "is_active": False}
        for spec in specs
    ]
    statement = (
        insert(asset)
        .values(updated_at=func.now())
        .returning(asset.c.id, asset.c.name, asset.c.uri, sort_by_parameter_order=True)
    )
    found = await connection.execute(statement, rows)
    return {AssetKey(name=row.name, uri=row.uri): row.id for row in found}


async def describe_asset(connection: AsyncConnection, asset_id: int, *, spec: AssetSpec) -> None:
    """Give the asset another group and extra."""
    statement = (
        update(asset)
        .where(asset.c.id == asset_id)
        .values(group_name=spec.group, extra=spec.extra, updated_at=func.now())
    )
    await connection.execute(statement)


async def set_active(connection: AsyncConnection, asset_ids: Collection[int], *, active: bool) -> None:
    """Activate or deactivate assets. Of two with the same name or uri the one must end before the other begins."""
    statement = update(asset).where(among(asset.c.id, asset_ids)).values(is_active=active, updated_at=func.now())
    await connection.execute(statement)


async def read_references(connection: AsyncConnection, dag_ids: Collection[str]) -> dict[Reference, int]:
    """The uses of assets by the DAGs, with the ids of their rows."""
    statement = (
        select(
            asset_reference.c.id,
            asset_reference.c.dag_id,
            asset_reference.c.kind,
            asset_reference.c.task_id,
            asset.c.name,
            asset.c.uri,
        )
        .join(asset, asset.c.id == asset_reference.c.asset_id)
        .where(among(asset_reference.c.dag_id, dag_ids))
    )
    return {
        Reference(
            dag_id=row.dag_id, asset=AssetKey(name=row.name, uri=row.uri), kind=row.kind, task_id=row.task_id
        ): row.id
        for row in await connection.execute(statement)
    }


async def insert_references(connection: AsyncConnection, rows: Sequence[tuple[Reference, int]]) -> None:
    """Insert uses, each with the id of its asset."""
    await connection.execute(
        insert(asset_reference),
        [
            {"dag_id": use.dag_id, "asset_id": asset_id, "kind": use.kind, "task_id": use.task_id}
            for use, asset_id in rows
        ],
    )


async def delete_references(connection: AsyncConnection, reference_ids: Collection[int]) -> None:
    """Delete uses."""
    await connection.execute(delete(asset_reference).where(among(asset_reference.c.id, reference_ids)))


async def read_referring_elsewhere(
    connection: AsyncConnection, asset_ids: Collection[int], *, dag_ids: Collection[str]
) -> set[int]:
    """Those of the assets to which active DAGs other than ``dag_ids`` refer."""
    statement = (
        select(asset_reference.c.asset_id)
        .distinct()
        .join(dag, dag.c.dag_id == asset_reference.c.dag_id)
        .where(among(asset_reference.c.asset_id, asset_ids), dag.c.is_active, ~among(dag.c.dag_id, dag_ids))
    )
    return set((await connection.execute(statement)).scalars())


async def read_scheduled_assets(connection: AsyncConnection, dag_id: str) -> list[int]:
    """The ids of the assets in the DAG's schedule."""
    statement = select(asset_reference.c.asset_id).where(
        asset_reference.c.dag_id == dag_id, asset_reference.c.kind == "schedule"
    )
    return sorted((await connection.execute(statement)).scalars())


async def read_users(connection: AsyncConnection, asset_ids: Collection[int]) -> list[str]:
    """The active DAGs that refer to one of the assets."""
    statement = (
        select(dag.c.dag_id)
        .distinct()
        .join(asset_reference, asset_reference.c.dag_id == dag.c.dag_id)
        .where(among(asset_reference.c.asset_id, asset_ids), dag.c.is_active)
        .order_by(dag.c.dag_id)
    )
    return list((await connection.execute(statement)).scalars())


async def read_conflicts(connection: AsyncConnection, dag_ids: Collection[str]) -> list[AssetConflict]:
    """Where an asset of the DAGs and another asset in use claim the same name or uri and exactly one is active."""
    other = asset.alias("other")
    # Two joins by equality instead of one with "or", which would compare every asset with every other.
    concerned = asset.c.id.in_(
        select(asset_reference.c.asset_id).where(among(asset_reference.c.dag_id, dag_ids)).distinct()
    )
    pairs = union(
        *(
            select(asset.c.id.label("own_id"), other.c.id.label("other_id"))
            .join(other, and_(same, other.c.id != asset.c.id, other.c.is_active != asset.c.is_active))
            .where(concerned)
            for same in (other.c.name == asset.c.name, other.c.uri == asset.c.uri)
        )
    ).subquery("pairs")
    other_use = asset_reference.alias("other_use")
    other_dag = dag.alias("other_dag")
    statement = (
        select(
            asset_reference.c.dag_id,
            asset.c.name,
            asset.c.uri,
            asset.c.is_active,
            other.c.name.label("other_name"),
            other.c.uri.label("other_uri"),
        )
        .distinct()
        .join(asset, asset.c.id == asset_reference.c.asset_id)
        .join(pairs, pairs.c.own_id == asset.c.id)
        .join(other, other.c.id == pairs.c.other_id)
        .join(other_use, other_use.c.asset_id == other.c.id)
        .join(other_dag, and_(other_dag.c.dag_id == other_use.c.dag_id, other_dag.c.is_active))
        .where(among(asset_reference.c.dag_id, dag_ids))
    )
    return [
        AssetConflict(
            dag_id=row.dag_id,
            own=AssetKey(name=row.name, uri=row.uri),
            other=AssetKey(name=row.other_name, uri=row.other_uri),
            own_is_active=row.is_active,
        )
        for row in await connection.execute(statement)
    ]
