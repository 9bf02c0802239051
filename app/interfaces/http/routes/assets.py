"""Assets, their events, and what waits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AwareDatetime
from sqlalchemy.ext.asyncio import AsyncConnection

from app.interfaces.http.dependencies import Caller, HostOf, PageOf, Poster
from app.interfaces.http.schemas import AssetAnswer, AssetList, EventAnswer, EventBody, EventList, QueuedEventList
from app.kernel.errors import AlreadyExists, InvalidRequest, NotFound
from app.services import demand
from app.store.listings import assets as listed
from app.store.listings import events as listed_events
from watchers.payloads import encode_payload

router = APIRouter(tags=["Asset"])
AssetId = Annotated[int, Path(ge=0, lt=2**63)]


@router.get("/assets")
async def get_assets(
    host: HostOf,
    page: PageOf,
    _caller: Caller,
    name_pattern: str | None = None,
    name_prefix_pattern: str | None = None,
    uri_pattern: str | None = None,
    uri_prefix_pattern: str | None = None,
    dag_ids: Annotated[list[str] | None, Query()] = None,
    only_active: bool = True,
) -> AssetList:
    """List assets."""
    async with host.database.transaction() as connection:
        found = await listed.list_assets(
            connection,
            page,
            name_pattern=name_pattern,
            name_prefix_pattern=name_prefix_pattern,
            uri_pattern=uri_pattern,
            uri_prefix_pattern=uri_prefix_pattern,
            dag_ids=dag_ids or (),
            only_active=only_active,
        )
    return AssetList.model_validate({"assets": found.rows, "total_entries": found.total})


@router.get("/assets/events")
async def get_events(
    host: HostOf,
    page: PageOf,
    _caller: Caller,
    asset_id: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    source_dag_id: str | None = None,
    source_task_id: str | None = None,
    source_run_id: str | None = None,
    source_map_index: Annotated[int | None, Query(ge=-1, lt=2**31)] = None,
    name_pattern: str | None = None,
    name_prefix_pattern: str | None = None,
    timestamp_gt: AwareDatetime | None = None,
    timestamp_gte: AwareDatetime | None = None,
    timestamp_lt: AwareDatetime | None = None,
    timestamp_lte: AwareDatetime | None = None,
) -> EventList:
    """List asset events, oldest first."""
    equal = {
        "asset_id": asset_id,
        "source_dag_id": source_dag_id,
        "source_task_id": source_task_id,
        "source_run_id": source_run_id,
        "source_map_index": source_map_index,
    }
    async with host.database.transaction() as connection:
        found = await listed_events.list_events(
            connection,
            page,
            equal=equal,
            name_pattern=name_pattern,
            name_prefix_pattern=name_prefix_pattern,
            after=timestamp_gt,
            after_or_at=timestamp_gte,
            before=timestamp_lt,
            before_or_at=timestamp_lte,
        )
    return EventList.model_validate({"asset_events": found.rows, "total_entries": found.total})


@router.post("/assets/events")
async def post_event(
    host: HostOf,
    poster: Poster,
    body: EventBody,
    _caller: Caller,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> EventAnswer:
    """Make an event of an asset. With ``Idempotency-Key`` the same request again answers the first event."""
    settings = host.settings
    encode_payload(body.extra, max_bytes=settings.max_payload_bytes, max_depth=settings.max_payload_depth)
    async with host.database.transaction() as connection:
        asset = await _named_asset(connection, body)
    event_id = await poster.post(
        asset_id=asset["id"],
        extra=body.extra,
        idempotency_key=idempotency_key,
        body_digest=hashlib.sha256(body.model_dump_json().encode()).digest(),
    )
    async with host.database.transaction() as connection:
        event = await listed_events.read_event(connection, event_id)
    if event is None:
        raise NotFound(what=f"event {event_id} any more")
    return EventAnswer.model_validate(event)


async def _named_asset(connection: AsyncConnection, body: EventBody) -> Mapping[str, Any]:
    """The one active asset a body names; 404, 409 or 400 with the reason."""
    named = {key: value for key in ("asset_id", "name", "uri") if (value := getattr(body, key)) is not None}
    if not named:
        raise InvalidRequest(reason="name the asset by asset_id, name or uri")
    found = await listed.find_assets(connection, **named)
    if found and found[0]["is_active"]:
        return found[0]
    said = ", ".join(f"{key}={value!r}" for key, value in named.items())
    if found:
        raise AlreadyExists(f"the asset with {said} is not active: no DAG uses it now")
    for key, value in named.items():
        if len(named) > 1 and await listed.find_assets(connection, **{key: value}):
            raise AlreadyExists(f"{said} do not name one and the same asset")
    raise NotFound(what=f"asset with {said}")


@router.get("/assets/{asset_id}")
async def get_asset(host: HostOf, asset_id: AssetId, _caller: Caller) -> AssetAnswer:
    """One asset."""
    async with host.database.transaction() as connection:
        found = await listed.read_asset(connection, asset_id)
    if found is None:
        raise NotFound(what=f"asset {asset_id}")
    return AssetAnswer.model_validate(found)


@router.get("/assets/{asset_id}/queuedEvents")
async def get_queued_of_asset(
    host: HostOf, asset_id: AssetId, _caller: Caller, before: AwareDatetime | None = None
) -> QueuedEventList:
    """What waits of an asset, for any DAG."""
    return await _queued(host, asset_id=asset_id, before=before)


@router.get("/dags/{dag_id}/assets/queuedEvents")
async def get_queued_of_dag(
    host: HostOf, dag_id: str, _caller: Caller, before: AwareDatetime | None = None
) -> QueuedEventList:
    """What waits for a DAG."""
    return await _queued(host, dag_id=dag_id, before=before)


@router.get("/dags/{dag_id}/assets/{asset_id}/queuedEvents")
async def get_queued(
    host: HostOf, dag_id: str, asset_id: AssetId, _caller: Caller, before: AwareDatetime | None = None
) -> QueuedEventList:
    """What waits of an asset for a DAG."""
    return await _queued(host, dag_id=dag_id, asset_id=asset_id, before=before)


@router.delete("/assets/{asset_id}/queuedEvents", status_code=204, response_class=Response)
async def delete_queued_of_asset(
    host: HostOf, asset_id: AssetId, _caller: Caller, before: AwareDatetime | None = None
) -> None:
    """Drop what waits of an asset, for any DAG."""
    await _delete(host, asset_id=asset_id, before=before)


@router.delete("/dags/{dag_id}/assets/queuedEvents", status_code=204, response_class=Response)
async def delete_queued_of_dag(
    host: HostOf, dag_id: str, _caller: Caller, before: AwareDatetime | None = None
) -> None:
    """Drop what waits for a DAG."""
    await _delete(host, dag_id=dag_id, before=before)


@router.delete("/dags/{dag_id}/assets/{asset_id}/queuedEvents", status_code=204, response_class=Response)
async def delete_queued(
    host: HostOf, dag_id: str, asset_id: AssetId, _caller: Caller, before: AwareDatetime | None = None
) -> None:
    """Drop what waits of an asset for a DAG."""
    await _delete(host, dag_id=dag_id, asset_id=asset_id, before=before)


async def _queued(
    host: HostOf, *, dag_id: str | None = None, asset_id: int | None = None, before: datetime | None = None
) -> QueuedEventList:
    async with host.database.transaction() as connection:
        rows = await listed_events.queued_events(connection, dag_id=dag_id, asset_id=asset_id, before=before)
    if not rows:
        raise NotFound(what="queued event for this")
    return QueuedEventList.model_validate({"queued_events": rows, "total_entries": len(rows)})


async def _delete(
    host: HostOf, *, dag_id: str | None = None, asset_id: int | None = None, before: datetime | None = None
) -> None:
    dropped = await demand.delete_queued(
        host.database, host.notifier, dag_id=dag_id, asset_id=asset_id, before=before
    )
    if not dropped:
        raise NotFound(what="queued event for this")
