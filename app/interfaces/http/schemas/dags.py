"""DAGs and import errors."""

from __future__ import annotations

from datetime import datetime

from pydantic import AliasChoices, Field, JsonValue

from app.interfaces.http.schemas.base import Answer, Body
from app.interfaces.http.schemas.runs import VersionAnswer


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
    file_token: str
    is_backfillable: bool = False
    max_consecutive_failed_dag_runs: int = 0
    timetable_partitioned: bool = False
    timetable_periodic: bool
    warnings: list[WarningAnswer]


class DagDetails(DagAnswer):
    """A DAG with what its file declares."""

    catchup: bool
    params: dict[str, JsonValue] | None = None
    start_date: str | None = None
    end_date: str | None = None
    latest_dag_version: VersionAnswer | None = None
    concurrency: int
    dag_run_timeout: str | None = None
    is_paused_upon_creation: bool | None = None
    render_template_as_native_obj: bool = False
    timezone: str | None = None
    asset_expression: dict[str, JsonValue] | None = None
    tasks: list[dict[str, JsonValue]]


class DagList(Answer):
    """A page of DAGs."""

    dags: list[DagAnswer]
    total_entries: int


class DagPatch(Body):
    """What can be changed of a DAG."""

    is_paused: bool


class ImportErrorAnswer(Answer):
    """A pipeline file that could not be loaded."""

    import_error_id: int = Field(validation_alias=AliasChoices("id", "import_error_id"))
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
