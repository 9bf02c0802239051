"""Rows of the store in the shapes of the field's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from app.domain.specs import ScheduleKind
from app.domain.states import TaskState
from app.interfaces.http.redaction import redacted
from app.interfaces.http.xcoms import shown_value

_PERIODIC = frozenset({ScheduleKind.CRON, ScheduleKind.DELTA, ScheduleKind.CONTINUOUS})


def shaped_asset(row: Mapping[str, Any]) -> dict[str, Any]:
    """An asset."""
    return {**row, "extra": redacted(row["extra"])}


def shaped_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """An event."""
    return {**row, "extra": redacted(row["extra"])}


def _as_uuid(number: int) -> UUID:
    """The field's clients insist on UUIDs where we count."""
    return UUID(int=number)


def shaped_version(row: Mapping[str, Any], *, version_id: int) -> dict[str, Any]:
    """The DAG version of a run or task."""
    return {
        "id": _as_uuid(version_id),
        "version_number": row["version_number"],
        "dag_id": row["dag_id"],
        "dag_display_name": row["dag_id"],
        "bundle_version": row["bundle_digest"],
        "created_at": row["version_created_at"],
    }


def duration(row: Mapping[str, Any]) -> float | None:
    """Seconds from start to end, if both are known."""
    if row["start_date"] is None or row["end_date"] is None:
        return None
    return float((row["end_date"] - row["start_date"]).total_seconds())


def shaped_dag(row: Mapping[str, Any], *, folder: str) -> dict[str, Any]:
    """A DAG with what its file declares."""
    spec: Mapping[str, Any] = row["spec"] or {}
    schedule: Mapping[str, Any] = spec.get("schedule") or {}
    name = spec.get("display_name") or row["dag_id"]
    return {
        **row,
        "dag_display_name": name,
        "is_stale": not row["is_active"],
        "description": spec.get("description"),
        "fileloc": f"{folder}/{row['file_path']}",
        "relative_fileloc": row["file_path"],
        "timetable_summary": schedule.get("summary"),
        "timetable_description": schedule.get("summary"),
        "tags": [{"name": tag, "dag_id": row["dag_id"], "dag_display_name": name} for tag in spec.get("tags", ())],
        "owners": list(spec.get("owners", ())),
        "next_dagrun_logical_date": row["next_logical_date"],
        "next_dagrun_run_after": row["next_run_at"],
        "last_parsed_time": row["last_parsed_at"],
        "bundle_version": row["bundle_digest"],
        "catchup": bool(spec.get("catchup", False)),
        "params": spec.get("params") or {},
        "start_date": spec.get("start_date"),
        "end_date": spec.get("end_date"),
        "file_token": row["file_path"],
        "timetable_periodic": schedule.get("kind") in _PERIODIC,
        "latest_dag_version": _latest_version(row),
        "concurrency": row["max_active_tasks"],
        "dag_run_timeout": _timeout(spec),
        "is_paused_upon_creation": spec.get("is_paused_upon_creation"),
        "timezone": schedule.get("timezone", "UTC"),
        "asset_expression": schedule.get("condition"),
        "tasks": [dict(task) for task in spec.get("tasks", ())],
    }


def _latest_version(row: Mapping[str, Any]) -> dict[str, Any] | None:
    number = row["current_version_id"]
    return shaped_version(row, version_id=number) if number is not None else None


def _timeout(spec: Mapping[str, Any]) -> str | None:
    seconds = spec.get("dagrun_timeout")
    return str(timedelta(seconds=seconds)) if seconds is not None else None


def shaped_run(row: Mapping[str, Any]) -> dict[str, Any]:
    """A run."""
    return {
        **row,
        "dag_run_id": row["run_id"],
        "dag_display_name": row["dag_id"],
        "duration": duration(row),
        "dag_versions": [shaped_version(row, version_id=row["dag_version_id"])],
        "bundle_version": row["bundle_digest"],
    }


def shaped_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """A task instance. The state "none" is null in the field's answers."""
    waits_for = None
    if row["trigger_id"] is not None:
        waits_for = {
            "id": row["trigger_id"],
            "classpath": row["trigger_classpath"],
            "created_date": row["trigger_created_date"],
            "queue": row["trigger_queue"],
            "triggerer_id": row["triggerer_id"],
        }
    return {
        **row,
        "id": _as_uuid(row["id"]),
        "dag_run_id": row["run_id"],
        "dag_display_name": row["dag_id"],
        "task_display_name": row["task_id"],
        "state": None if row["state"] == TaskState.NONE else row["state"],
        "duration": duration(row),
        "operator_name": row["operator"],
        "queued_when": row["queued_at"],
        "scheduled_when": row["scheduled_at"],
        "trigger": waits_for,
        "dag_version": shaped_version(row, version_id=row["dag_version_id"]),
    }


def shaped_xcom(row: Mapping[str, Any], task: Mapping[str, Any], *, as_text: bool = False) -> dict[str, Any]:
    """An XCom entry of a task instance; ``as_text`` gives its value as JSON text."""
    value = shown_value(row["value"])
    return {
        **row,
        "value": json.dumps(value) if as_text else value,
        "logical_date": task["logical_date"],
        "dag_id": task["dag_id"],
        "run_id": task["run_id"],
        "dag_display_name": task["dag_id"],
        "task_display_name": task["task_id"],
        "run_after": task["run_after"],
    }
