"""How events come to be: from triggers (:func:`store_batch`), from callers (:func:`post_event`, :class:`EventPoster`)
and from tasks (:func:`record_outlet_events`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.domain.deliveries import Delivery, DeliveryItem, Position, Refusal, Resolution, Verdict
from app.domain.specs import AssetKey
from app.services.deliveries import store_batch
from app.services.posting import (
    AssetNotFound,
    EventPoster,
    IdempotencyConflict,
    NotStoredYet,
    PostedEvent,
    body_digest,
    post_event,
)
from app.services.recording import message_identity, record
from app.store import events as statements
from app.store.database import Connection, HotConnection
from app.store.events import EventRow

__all__ = [
    "AssetNotFound",
    "Delivery",
    "DeliveryItem",
    "EventPoster",
    "IdempotencyConflict",
    "NotStoredYet",
    "OutletRefused",
    "OutletStored",
    "Position",
    "PostedEvent",
    "Refusal",
    "Resolution",
    "TaskOutletEvent",
    "Verdict",
    "body_digest",
    "message_identity",
    "post_event",
    "record_outlet_events",
    "store_batch",
]


class TaskOutletEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a finished attempt makes of one of its outlets."""

    asset: AssetKey
    extra: Mapping[str, Any]
    source_dag_id: str
    source_task_id: str
    source_run_id: str
    source_map_index: int = -1


class OutletStored(msgspec.Struct, frozen=True, kw_only=True):
    """The outlet's event."""

    event_id: int
    asset_id: int


class OutletRefused(msgspec.Struct, frozen=True, kw_only=True):
    """No event was made; ``reason`` is for people (``unknown asset`` or ``inactive asset``)."""

    asset: AssetKey
    reason: str


async def record_outlet_events(
    connection: Connection | HotConnection, *, events: Sequence[TaskOutletEvent]
) -> list[OutletStored | OutletRefused]:
    """Record the events in the transaction that ends the task; answers stand in the same order.

    An unknown or inactive asset is an answer, not an error: the task's end stands. Poke ``demand`` after the commit.
    """
    if not events:
        return []
    hot = await statements.hot_of(connection)
    keys = list(dict.fromkeys((event.asset.name, event.asset.uri) for event in events))
    assets = await statements.assets_by_key(hot, keys=keys)
    event_ids, body_ids = await statements.reserve_ids(hot, events=len(events), bodies=len(events))
    answers: list[OutletStored | OutletRefused] = []
    rows: list[EventRow] = []
    for event, event_id, body_id in zip(events, event_ids, body_ids, strict=True):
        found = assets.get((event.asset.name, event.asset.uri))
        if found is None or not found[1]:
            reason = "unknown asset" if found is None else "inactive asset"
            answers.append(OutletRefused(asset=event.asset, reason=reason))
            continue
        answers.append(OutletStored(event_id=event_id, asset_id=found[0]))
        rows.append(_outlet_row(event, event_id=event_id, asset_id=found[0], body_id=body_id))
    bodies = {
        body_id: json.dumps(event.extra, allow_nan=False, separators=(",", ":"))
        for body_id, event in zip(body_ids, events, strict=True)
    }
    await record(hot, bodies=bodies, events=rows)
    return answers


def _outlet_row(event: TaskOutletEvent, *, event_id: int, asset_id: int, body_id: int) -> EventRow:
    return EventRow(
        id=event_id,
        asset_id=asset_id,
        body_id=body_id,
        origin="task",
        source_dag_id=event.source_dag_id,
        source_task_id=event.source_task_id,
        source_run_id=event.source_run_id,
        source_map_index=event.source_map_index,
    )
