"""Triggers."""

from __future__ import annotations

from datetime import datetime

from app.interfaces.http.schemas.base import Answer


class TriggerWatcherAnswer(Answer):
    """A watcher served by a trigger."""

    name: str
    asset_id: int
    asset_name: str


class TriggerAnswer(Answer):
    """A trigger and how it does. Never its arguments.

    ``lag`` is how many messages wait at its source, as it said at ``lag_at``; null where that is unknown. A source that
    stood still is ``degraded`` until it makes progress. A trigger that waits at its yield because of a limit is
    ``throttled``: its messages wait in the broker.
    """

    id: int
    classpath: str
    queue: str | None = None
    team_name: str | None = None
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
    lag: int | None = None
    lag_at: datetime | None = None
    degraded_reason: str | None = None
    degraded_since: datetime | None = None
    throttled_reason: str | None = None
    throttled_since: datetime | None = None
    watchers: list[TriggerWatcherAnswer]
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None


class TriggerList(Answer):
    """A page of triggers."""

    triggers: list[TriggerAnswer]
    total_entries: int
