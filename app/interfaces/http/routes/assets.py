"""Assets, their events, and what waits."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from app.domain.json_values import payload_text
from app.interfaces.http.dependencies import HostOf, PageOf, Posting
from app.interfaces.http.redaction import redacted
from app.interfaces.http.schemas.assets import (
    AssetAnswer,
    AssetList,
    EventAnswer,
    EventBody,
    EventList,
    QueuedEventAnswer,
    QueuedEventList,
)
from app.interfaces.http.schemas.base import Moment
from app.interfaces.http.shapes import shaped_asset, shaped_event
from app.kernel.errors import AlreadyExists, NotFound
from app.services import demand
from app.services.events import AssetNotFound, NotStoredYet, PostedEvent
from app.services.named_assets import NamedAsset
from app.store.errors import DatabaseUnavailable
from app.store.listings import assets as listed
from app.store.listings import events as listed_events


class EventDeleted(AlreadyExists):
    """The first request with this Idempotency-Key made event {event_id}, which has been deleted since."""


#: Longest that a caller waits for an event to be stored, in seconds.
POST_LIMIT = 10.0

router = APIRouter(tags=["Asset"])
AssetId = Annotated[int, Path(ge=0, lt=2**63)]


@router.get("/assets")
async def get_assets(
    host: HostOf,
    page: PageOf,
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
    return AssetList(
        assets=[AssetAnswer.model_validate(shaped_asset(row)) for row in found.rows], total_entries=found.total
    )


@router.get("/assets/events")
async def get_events(
    host: HostOf,
    page: PageOf,
    asset_id: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    source_dag_id: str | None = None,
    source_task_id: str | None = None,
    source_run_id: str | None = None,
    source_map_index: Annotated[int | None, Query(ge=-1, lt=2**31)] = None,
    name_pattern: str | None = None,
    name_prefix_pattern: str | None = None,
    timestamp_gt: Moment | None = None,
    timestamp_gte: Moment | None = None,
    timestamp_lt: Moment | None = None,
    timestamp_lte: Moment | None = None,
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
    return EventList(
        asset_events=[EventAnswer.model_validate(shaped_event(row)) for row in found.rows], total_entries=found.total
    )


@router.post("/assets/events")
async def post_event(
    host: HostOf,
    posting: Posting,
    response: Response,
    body: EventBody,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> EventAnswer:
    """Make an event of an asset. With ``Idempotency-Key`` the same request again answers the first event, and says so
    in the header ``Idempotent-Replayed``. 503 means that it may still be stored: with the key it is safe to repeat."""
    settings = host.settings
    payload_text(body.extra, what="extra", max_bytes=settings.max_payload_bytes, max_depth=settings.max_payload_depth)
    try:
        async with asyncio.timeout(POST_LIMIT):
            asset, posted = await _post(posting, body, idempotency_key)
    except (TimeoutError, DatabaseUnavailable) as error:
        raise NotStoredYet from error
    if posted.timestamp is None:
        response.headers["Idempotent-Replayed"] = "true"
        return await _first_event(host, posted.event_id)
    # Nothing can have happened to it that the caller must know: its row is not read back.
    return EventAnswer(
        id=posted.event_id,
        asset_id=asset.asset_id,
        uri=asset.uri,
        name=asset.name,
        group=asset.group,
        extra=redacted({**body.extra, "from_rest_api": True}),
        source_map_index=-1,
        created_dagruns=[],
        timestamp=posted.timestamp,
    )


async def _post(posting: Posting, body: EventBody, key: str | None) -> tuple[NamedAsset, PostedEvent]:
    asset = await posting.names.find(asset_id=body.asset_id, name=body.name, uri=body.uri)
    try:
        return asset, await posting.poster.post(asset_id=asset.asset_id, extra=body.extra, idempotency_key=key)
    except AssetNotFound:
        # It went out of use since it was looked up: perhaps another asset has its name now, else this tells why not.
        posting.names.forget(asset)
        asset = await posting.names.find(asset_id=body.asset_id, name=body.name, uri=body.uri)
        return asset, await posting.poster.post(asset_id=asset.asset_id, extra=body.extra, idempotency_key=key)


async def _first_event(host: HostOf, event_id: int) -> EventAnswer:
    async with host.database.transaction() as connection:
        event = await listed_events.read_event(connection, event_id)
    if event is None:
        raise EventDeleted(event_id=event_id)
    return EventAnswer.model_validate(shaped_event(event))


@router.get("/assets/{asset_id}")
async def get_asset(host: HostOf, asset_id: AssetId) -> AssetAnswer:
    """One asset."""
    async with host.database.transaction() as connection:
        found = await listed.read_asset(connection, asset_id)
    if found is None:
        raise NotFound(what=f"asset {asset_id}")
    return AssetAnswer.model_validate(shaped_asset(found))


@router.get("/assets/{asset_id}/queuedEvents")
async def get_queued_of_asset(host: HostOf, asset_id: AssetId, before: Moment | None = None) -> QueuedEventList:
    """What waits of an asset, for any DAG."""
    return await _queued(host, asset_id=asset_id, before=before)


@router.get("/dags/{dag_id}/assets/queuedEvents")
async def get_queued_of_dag(host: HostOf, dag_id: str, before: Moment | None = None) -> QueuedEventList:
    """What waits for a DAG."""
    return await _queued(host, dag_id=dag_id, before=before)


@router.get("/dags/{dag_id}/assets/{asset_id}/queuedEvents")
async def get_queued(host: HostOf, dag_id: str, asset_id: AssetId, before: Moment | None = None) -> QueuedEventList:
    """What waits of an asset for a DAG."""
    return await _queued(host, dag_id=dag_id, asset_id=asset_id, before=before)


@router.delete("/assets/{asset_id}/queuedEvents", status_code=204, response_class=Response)
async def delete_queued_of_asset(host: HostOf, asset_id: AssetId, before: Moment | None = None) -> None:
    """Drop what waits of an asset, for any DAG."""
    await _delete(host, asset_id=asset_id, before=before)


@router.delete("/dags/{dag_id}/assets/queuedEvents", status_code=204, response_class=Response)
async def delete_queued_of_dag(host: HostOf, dag_id: str, before: Moment | None = None) -> None:
    """Drop what waits for a DAG."""
    await _delete(host, dag_id=dag_id, before=before)


@router.delete("/dags/{dag_id}/assets/{asset_id}/queuedEvents", status_code=204, response_class=Response)
async def delete_queued(host: HostOf, dag_id: str, asset_id: AssetId, before: Moment | None = None) -> None:
    """Drop what waits of an asset for a DAG."""
    await _delete(host, dag_id=dag_id, asset_id=asset_id, before=before)


async def _queued(
    host: HostOf, *, dag_id: str | None = None, asset_id: int | None = None, before: datetime | None = None
) -> QueuedEventList:
    async with host.database.transaction() as connection:
        rows = await listed_events.queued_events(connection, dag_id=dag_id, asset_id=asset_id, before=before)
    if not rows:
        raise NotFound(what="queued event for this")
    return QueuedEventList(
        queued_events=[QueuedEventAnswer.model_validate(row) for row in rows], total_entries=len(rows)
    )


async def _delete(
    host: HostOf, *, dag_id: str | None = None, asset_id: int | None = None, before: datetime | None = None
) -> None:
    dropped = await demand.delete_queued(host.database, host.notifier, dag_id=dag_id, asset_id=asset_id, before=before)
    if not dropped:
        raise NotFound(what="queued event for this")
