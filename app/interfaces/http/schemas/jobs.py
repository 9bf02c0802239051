"""Processes."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from app.interfaces.http.schemas.base import Answer


class JobAnswer(Answer):
    """A process of the service. ``details`` of a triggerer name its runners with their memory, in bytes, and how many
    triggers of which class they run."""

    id: int
    job_type: str
    state: str
    hostname: str
    pid: int
    capacity: int | None
    queues: list[str] | None
    team_name: str | None
    start_date: datetime = Field(validation_alias="started_at")
    end_date: datetime | None = Field(validation_alias="ended_at")
    latest_heartbeat: datetime
    latest_progress: datetime | None
    details: dict[str, JsonValue] | None


class JobList(Answer):
    """A page of processes."""

    jobs: list[JobAnswer]
    total_entries: int
