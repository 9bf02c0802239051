"""Statements on the triggers of watchers as pipeline files declare them (who runs them is in ``triggers``).

A running owner is fenced by what happens here: a row that is gone, no longer wanted, or of a later epoch takes none of
its writes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, case, delete, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.states import TriggerStatus
from app.store.expressions import among
from app.store.tables import (
    asset,
    asset_reference,
    asset_watcher,
    asset_watcher_source,
    dag,
    dead_letter,
    source_position,
    state_change,
    trigger,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrigger:
    """A trigger row, as far as declarations concern it."""

    trigger_id: int
    queue: str | None
    acknowledges: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrigger:
    """A trigger to insert; ``kwargs`` are encrypted already."""

    identity: str
    classpath: str
    kwargs: bytes
    queue: str | None
    team_name: str | None
    bundle_digest: str | None
    acknowledges: bool = False


async def read_by_identity(connection: AsyncConnection, identities: Collection[str]) -> dict[str, StoredTrigger]:
    """The triggers of watchers that exist, by identity."""
    statement = select(trigger.c.identity, trigger.c.id, trigger.c.queue, trigger.c.acknowledges).where(
        trigger.c.kind == "asset", among(trigger.c.identity, identities)
    )
    return {
        row.identity: StoredTrigger(trigger_id=row.id, queue=row.queue, acknowledges=row.acknowledges)
        for row in await connection.execute(statement)
    }


async def lock_triggers(connection: AsyncConnection, trigger_ids: Collection[int]) -> None:
    """Lock the rows in the order of id: after any DAG row (see ``dags``)."""
    statement = select(trigger.c.id).where(among(trigger.c.id, trigger_ids)).order_by(trigger.c.id).with_for_update()
    await connection.execute(statement)


async def insert_triggers(connection: AsyncConnection, triggers: Sequence[NewTrigger]) -> dict[str, int]:
    """Insert triggers, not wanted yet and owned by nobody; their ids by identity."""
    rows = [
        {
            "kind": "asset",
            "identity": new.identity,
            "classpath": new.classpath,
            "kwargs": new.kwargs,
            "queue": new.queue,
            "team_name": new.team_name,
            "bundle_digest": new.bundle_digest,
            "acknowledges": new.acknowledges,
            "wanted": False,
            "status": TriggerStatus.UNASSIGNED,
        }
        for new in triggers
    ]
    statement = insert(trigger).returning(trigger.c.id, trigger.c.identity, sort_by_parameter_order=True)
    return {row.identity: row.id for row in await connection.execute(statement, rows)}


async def copy_positions(connection: AsyncConnection, *, from_trigger: int, to_trigger: int) -> None:
    """Let a trigger resume where the one it replaces stood."""
    position = source_position
    taken = select(
        literal(to_trigger, trigger.c.id.type),
        position.c.source,
        position.c.lane,
        position.c.position,
        position.c.updated_at,
    ).where(position.c.trigger_id == from_trigger)
    columns = ["trigger_id", "source", "lane", "position", "updated_at"]
    await connection.execute(upsert(position).from_select(columns, taken).on_conflict_do_nothing())


async def inherit_letters(
    connection: AsyncConnection, *, from_trigger: int, to_trigger: int, asset_ids: Collection[int]
) -> None:
    """Let a trigger that takes another's place for assets answer for their dead letters, and for those of the whole
    trigger once nothing else is linked to it."""
    letter = dead_letter
    linked = select(asset_watcher.c.id).where(asset_watcher.c.trigger_id == from_trigger)
    of_all = and_(letter.c.asset_id.is_(None), ~linked.exists())
    statement = (
        update(letter)
        .where(letter.c.trigger_id == from_trigger, or_(among(letter.c.asset_id, asset_ids), of_all))
        .values(trigger_id=to_trigger)
    )
    await connection.execute(statement)


async def delete_unlinked(connection: AsyncConnection, trigger_ids: Collection[int]) -> list[int]:
    """Delete those of the triggers that no watcher needs. Their positions go with them, their events stay."""
    linked = select(asset_watcher.c.id).where(asset_watcher.c.trigger_id == trigger.c.id)
    statement = (
        delete(trigger)
        .where(among(trigger.c.id, trigger_ids), trigger.c.kind == "asset", ~linked.exists())
        .returning(trigger.c.id)
    )
    return list((await connection.execute(statement)).scalars())


async def refresh_wanted(connection: AsyncConnection, trigger_ids: Collection[int]) -> list[int]:
    """Want each trigger exactly if an active asset it serves has an active, unpaused consumer; those that changed."""
    consumer = (
        select(asset_watcher.c.id)
        .join(asset, and_(asset.c.id == asset_watcher.c.asset_id, asset.c.is_active))
        .join(asset_reference, and_(asset_reference.c.asset_id == asset.c.id, asset_reference.c.kind == "schedule"))
        .join(dag, and_(dag.c.dag_id == asset_reference.c.dag_id, dag.c.is_active, ~dag.c.is_paused))
        .where(asset_watcher.c.trigger_id == trigger.c.id)
        .correlate(trigger)
        .exists()
    )
    statement = (
        update(trigger)
        .where(among(trigger.c.id, trigger_ids), trigger.c.kind == "asset", trigger.c.wanted != consumer)
        .values(wanted=~trigger.c.wanted)
        .returning(trigger.c.id)
    )
    return list((await connection.execute(statement)).scalars())


async def release(connection: AsyncConnection, trigger_ids: Collection[int], *, reason: str) -> None:
    """Fence the owners of the triggers, so that they start anew: same row, next epoch, position kept."""
    released = select(
        literal("trigger"), trigger.c.id, trigger.c.status, literal(TriggerStatus.UNASSIGNED.value), literal(reason)
    ).where(among(trigger.c.id, trigger_ids), trigger.c.status != TriggerStatus.UNASSIGNED)
    columns = ["subject", "subject_id", "from_state", "to_state", "reason"]
    await connection.execute(insert(state_change).from_select(columns, released))
    statement = (
        update(trigger)
        .where(among(trigger.c.id, trigger_ids))
        .values(status=TriggerStatus.UNASSIGNED, owner_id=None, epoch=trigger.c.epoch + 1, next_attempt_at=None)
    )
    await connection.execute(statement)


async def set_queue(connection: AsyncConnection, trigger_id: int, *, queue: str | None) -> None:
    """Let a trigger run on another queue."""
    await connection.execute(update(trigger).where(trigger.c.id == trigger_id).values(queue=queue))


async def set_acknowledges(connection: AsyncConnection, trigger_id: int, *, acknowledges: bool) -> None:
    """Note whether a trigger's source forgets what was acknowledged: its code says so now."""
    await connection.execute(update(trigger).where(trigger.c.id == trigger_id).values(acknowledges=acknowledges))


async def replace_code(connection: AsyncConnection, trigger_ids: Collection[int], *, preferred: str) -> list[int]:
    """Give triggers whose code version no file declares any more one that is declared; those that changed.

    ``preferred`` is taken if it is among the versions declared. Other code is not to blame for what this one did.
    """
    source = asset_watcher_source
    declared = (
        select(source.c.bundle_digest)
        .join(asset_watcher, asset_watcher.c.id == source.c.watcher_id)
        .where(asset_watcher.c.trigger_id == trigger.c.id)
        .correlate(trigger)
    )
    best = declared.order_by(case((source.c.bundle_digest == preferred, 0), else_=1), source.c.file_path).limit(1)
    statement = (
        update(trigger)
        .where(
            among(trigger.c.id, trigger_ids),
            trigger.c.bundle_digest.is_not(None),
            trigger.c.bundle_digest.not_in(declared),
            declared.exists(),
        )
        .values(bundle_digest=best.scalar_subquery(), runs_alone=False, strikes=0)
        .returning(trigger.c.id)
    )
    return list((await connection.execute(statement)).scalars())
