"""Shapes of answers and bodies, in the field's names."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue


class Answer(BaseModel):
    """Base of answers: built from rows, extra columns of a row are left out."""

    model_config = ConfigDict(from_attributes=True, extra="ignore")


class Body(BaseModel):
    """Base of request bodies: what is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class TokenBody(Body):
    """Who asks for a token."""

    username: str
    password: str


class Token(Answer):
    """A bearer token."""

    access_token: str


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


class EventList(Answer):
    """A page of events."""

    asset_events: list[EventAnswer]
    total_entries: int


class EventBody(Body):
    """A new event of the asset named by ``asset_id``, ``name`` or ``uri``; all that are given must agree."""

    asset_id: int | None = Field(default=None, ge=0, lt=2**63)
    name: str | None = Field(default=None, min_length=1, max_length=1500)
    uri: str | None = Field(default=None, min_length=1, max_length=1500)
    extra: dict[str, JsonValue] = Field(default_factory=dict)


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


class TagAnswer(Answer):
    """A tag of a DAG."""

    name: str
    dag_id: str
    dag_display_name: str


class WarningAnswer(Answer):
    """Something about a DAG that people should know."""

    warning_type: str
    message: str
    timestamp: datetime


class DagAnswer(Answer):
    """A DAG."""

    dag_id: str
    dag_display_name: str
    is_paused: bool
    is_stale: bool
    description: str | None = None
    fileloc: str
    relative_fileloc: str
    timetable_summary: str | None = None
    timetable_description: str | None = None
    tags: list[TagAnswer]
    owners: list[str]
    max_active_runs: int
    max_active_tasks: int
    has_task_concurrency_limits: bool = True
    has_import_errors: bool
    next_dagrun_logical_date: datetime | None = None
    next_dagrun_run_after: datetime | None = None
    last_parsed_time: datetime | None = None
    bundle_name: str | None = None
    bundle_version: str | None = None
    warnings: list[WarningAnswer]


class DagDetails(DagAnswer):
    """A DAG with what its file declares."""

    catchup: bool
    params: dict[str, JsonValue] | None = None
    start_date: str | None = None
    end_date: str | None = None
    latest_dag_version: int | None = None
    asset_expression: dict[str, JsonValue] | None = None
    tasks: list[dict[str, JsonValue]]


class DagList(Answer):
    """A page of DAGs."""

    dags: list[DagAnswer]
    total_entries: int


class DagPatch(Body):
    """What can be changed of a DAG."""

    is_paused: bool


class VersionAnswer(Answer):
    """A version of a DAG."""

    id: int
    version_number: int
    dag_id: str
    bundle_name: str | None = None
    bundle_version: str | None = None
    created_at: datetime


class RunAnswer(Answer):
    """A DAG run."""

    dag_run_id: str
    dag_id: str
    dag_display_name: str
    logical_date: datetime | None = None
    queued_at: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    duration: float | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    run_after: datetime
    last_scheduling_decision: datetime | None = None
    run_type: str
    state: str
    triggered_by: str | None = None
    triggering_user_name: str | None = None
    conf: dict[str, JsonValue] | None = None
    note: str | None = None
    dag_versions: list[VersionAnswer]
    bundle_version: str | None = None
    partition_key: str | None = None


class RunList(Answer):
    """A page of runs."""

    dag_runs: list[RunAnswer]
    total_entries: int


class RunBody(Body):
    """A run by hand. ``logical_date`` must be given, though it may be null."""

    logical_date: AwareDatetime | None
    dag_run_id: str | None = Field(default=None, min_length=1, max_length=250)
    data_interval_start: AwareDatetime | None = None
    data_interval_end: AwareDatetime | None = None
    run_after: AwareDatetime | None = None
    conf: dict[str, JsonValue] | None = None
    note: str | None = Field(default=None, max_length=1000)


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

    id: str
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


class ImportErrorAnswer(Answer):
    """A pipeline file that could not be loaded."""

    import_error_id: int
    timestamp: datetime
    filename: str
    line: int | None = None
    message: str
    stack_trace: str
    bundle_name: str | None = None


class ImportErrorList(Answer):
    """A page of import errors."""

    import_errors: list[ImportErrorAnswer]
    total_entries: int


class TriggerWatcherAnswer(Answer):
    """A watcher served by a trigger."""

    name: str
    asset_id: int
    asset_name: str


class TriggerAnswer(Answer):
    """A trigger and how it does. Never its arguments."""

    id: int
    classpath: str
    queue: str | None = None
    created_date: datetime
    triggerer_id: int | None = None
    status: str
    wanted: bool
    restarts: int
    start_count: int
    events: int
    duplicates: int
    refused: int
    last_event_at: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None
    consecutive_errors: int
    next_attempt_at: datetime | None = None
    watchers: list[TriggerWatcherAnswer]
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None


class TriggerList(Answer):
    """A page of triggers."""

    triggers: list[TriggerAnswer]
    total_entries: int


class DeadLetterAnswer(Answer):
    """A message that could not become an event."""

    id: int
    trigger_id: int | None = None
    asset_id: int | None = None
    asset_name: str | None = None
    source: str | None = None
    key: str | None = None
    code: str
    reason: str
    raw_size: int | None = None
    created_at: datetime


class DeadLetterList(Answer):
    """A page of dead letters."""

    dead_letters: list[DeadLetterAnswer]
    total_entries: int


class Problem(BaseModel):
    """Every error."""

    detail: JsonValue
