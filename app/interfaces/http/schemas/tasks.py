"""Task instances, their logs and XComs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue

from app.interfaces.http.schemas.base import Answer
from app.interfaces.http.schemas.runs import VersionAnswer


class TriggerOfTask(Answer):
    """The trigger a deferred task waits for. Never its arguments."""

    id: int
    classpath: str
    kwargs: str = "{}"
    created_date: datetime
    queue: str | None = None
    triggerer_id: int | None = None


class TaskInstanceAnswer(Answer):
    """A task instance."""

    id: UUID
    task_id: str
    dag_id: str
    dag_run_id: str
    dag_display_name: str
    task_display_name: str
    map_index: int
    run_after: datetime
    logical_date: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    duration: float | None = None
    state: str | None = None
    try_number: int
    max_tries: int
    hostname: str | None = None
    unixname: str | None = None
    pool: str
    pool_slots: int
    queue: str | None = None
    priority_weight: int | None = None
    operator: str | None = None
    operator_name: str | None = None
    queued_when: datetime | None = None
    scheduled_when: datetime | None = None
    pid: int | None = None
    executor: str | None = None
    executor_config: str = "{}"
    note: str | None = None
    rendered_map_index: str | None = None
    rendered_fields: dict[str, JsonValue] = Field(default_factory=dict)
    trigger: TriggerOfTask | None = None
    triggerer_job: None = None
    dag_version: VersionAnswer | None = None


class TaskInstanceList(Answer):
    """A page of task instances."""

    task_instances: list[TaskInstanceAnswer]
    total_entries: int


class XComAnswer(Answer):
    """An XCom entry, without its value."""

    key: str
    timestamp: datetime
    logical_date: datetime | None = None
    map_index: int
    task_id: str
    dag_id: str
    run_id: str
    dag_display_name: str
    task_display_name: str
    run_after: datetime


class XComValue(XComAnswer):
    """An XCom entry with its value."""

    value: JsonValue


class XComList(Answer):
    """A page of XCom entries."""

    xcom_entries: list[XComAnswer]
    total_entries: int


class LogLine(Answer):
    """A line of a log; other attributes as the writer gave them."""

    model_config = ConfigDict(extra="allow")

    event: str
    timestamp: str | None = None


class LogAnswer(Answer):
    """The log of one attempt."""

    content: list[LogLine]
    continuation_token: str | None = None
