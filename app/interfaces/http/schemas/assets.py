"""Assets, their events, and what waits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, JsonValue, model_validator

from app.interfaces.http.schemas.base import Answer, Body, Name


class DagReference(Answer):
    """A DAG scheduled on an asset."""

    dag_id: str
    created_at: datetime
    updated_at: datetime


class TaskReference(DagReference):
    """A task with the asset among its outlets or inlets."""

    task_id: str


class AssetWatcherAnswer(Answer):
    """A watcher of an asset."""

    name: str
    trigger_id: int
    created_date: datetime


class LastAssetEvent(Answer):
    """The newest event of an asset."""

    id: int | None = None
    timestamp: datetime | None = None


class AssetAnswer(Answer):
    """An asset and who uses it."""

    id: int
    name: str
    uri: str
    group: str
    extra: dict[str, JsonValue] | None = None
    created_at: datetime
    updated_at: datetime
    scheduled_dags: list[DagReference]
    producing_tasks: list[TaskReference]
    consuming_tasks: list[TaskReference]
    aliases: list[dict[str, Any]]
    watchers: list[AssetWatcherAnswer]
    last_asset_event: LastAssetEvent | None = None


class AssetList(Answer):
    """A page of assets."""

    assets: list[AssetAnswer]
    total_entries: int


class CreatedRun(Answer):
    """A run that names an event as a cause; ``triggering`` if the event completed its condition."""

    run_id: str
    dag_id: str
    logical_date: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    state: str
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    partition_key: str | None = None
    triggering: bool


class EventAnswer(Answer):
    """An asset event."""

    id: int
    asset_id: int
    uri: str | None = None
    name: str | None = None
    group: str | None = None
    extra: dict[str, JsonValue] | None = None
    source_task_id: str | None = None
    source_dag_id: str | None = None
    source_run_id: str | None = None
    source_map_index: int
    created_dagruns: list[CreatedRun]
    timestamp: datetime
    partition_key: str | None = None
    #: The dead letter that was requeued to make it.
    requeued_from: int | None = None


class EventList(Answer):
    """A page of events."""

    asset_events: list[EventAnswer]
    total_entries: int


class EventBody(Body):
    """A new event of the asset named by ``asset_id``, ``name`` or ``uri``; all that are given must agree."""

    asset_id: int | None = Field(default=None, strict=True, ge=0, lt=2**63)
    name: Name | None = Field(default=None, min_length=1, max_length=1500)
    uri: Name | None = Field(default=None, min_length=1, max_length=1500)
    extra: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_an_asset(self) -> EventBody:
        if self.asset_id is None and self.name is None and self.uri is None:
            raise ValueError("name the asset by asset_id, name or uri")
        return self


class QueuedEventAnswer(Answer):
    """Events of one asset that wait for one DAG: since when, and how many."""

    dag_id: str
    asset_id: int
    created_at: datetime
    dag_display_name: str
    events: int


class QueuedEventList(Answer):
    """What waits."""

    queued_events: list[QueuedEventAnswer]
    total_entries: int
