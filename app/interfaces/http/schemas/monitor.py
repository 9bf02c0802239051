"""Login, version and health."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from app.interfaces.http.schemas.base import Answer, Body


class TokenBody(Body):
    """Who asks for a token."""

    username: str
    password: str


class Token(Answer):
    """A bearer token."""

    access_token: str


class VersionInfo(Answer):
    """The version of this service."""

    version: str
    git_version: str | None = None


class DatabaseHealth(Answer):
    """Whether the database answers."""

    status: str


class ProcessHealth(Answer):
    """One process. ``status``: ``healthy`` while it makes progress. Of triggerers also how many triggers they hold, of
    how many at most, and which queues and team they serve."""

    id: int
    job_type: str
    hostname: str
    pid: int
    status: str
    latest_heartbeat: datetime
    latest_progress: datetime | None = None
    capacity: int | None = None
    held: int | None = None
    queues: list[str] | None = None
    team_name: str | None = None


class UnservedTriggers(Answer):
    """Triggers that wait because no live triggerer serves their queue and team."""

    queue: str | None = None
    team_name: str | None = None
    count: int


class PartHealth(Answer):
    """Health of one kind of process. ``status``: ``healthy``, ``unhealthy``, ``unknown`` while the database is away,
    or null if there never was one."""

    status: str | None
    latest_progress: datetime | None = None
    processes: list[ProcessHealth] = Field(default_factory=list)


class SchedulerHealth(PartHealth):
    """Schedulers."""

    latest_scheduler_heartbeat: datetime | None = None


class TriggererHealth(PartHealth):
    """Triggerers."""

    latest_triggerer_heartbeat: datetime | None = None
    unserved: list[UnservedTriggers] = Field(default_factory=list)


class DagProcessorHealth(PartHealth):
    """Dag processors."""

    latest_dag_processor_heartbeat: datetime | None = None


class ApiServerHealth(PartHealth):
    """API servers."""

    latest_api_server_heartbeat: datetime | None = None


class HealthInfo(Answer):
    """Health of every kind of process."""

    metadatabase: DatabaseHealth
    scheduler: SchedulerHealth
    triggerer: TriggererHealth
    dag_processor: DagProcessorHealth
    api_server: ApiServerHealth
