"""DAG runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field, JsonValue, model_validator

from app.interfaces.http.schemas.base import Answer, Body, Moment


class VersionAnswer(Answer):
    """A version of a DAG."""

    id: UUID
    version_number: int
    dag_id: str
    dag_display_name: str
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

    logical_date: Moment | None
    dag_run_id: str | None = Field(default=None, min_length=1, max_length=250)
    data_interval_start: Moment | None = None
    data_interval_end: Moment | None = None
    run_after: Moment | None = None
    conf: dict[str, JsonValue] | None = None
    note: str | None = Field(default=None, max_length=1000)

    @model_validator(mode="after")
    def _whole_interval(self) -> RunBody:
        start, end = self.data_interval_start, self.data_interval_end
        if (start is None) != (end is None):
            raise ValueError("give both data_interval_start and data_interval_end, or neither")
        if start is not None and end is not None and start > end:
            raise ValueError("data_interval_start is after data_interval_end")
        return self
