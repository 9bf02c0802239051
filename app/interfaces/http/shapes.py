"""Rows of the store in the shapes of the field's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.domain.states import TaskState


def shaped_version(row: Mapping[str, Any], *, version_id: int) -> dict[str, Any]:
    """The DAG version of a run or task."""
    return {
        "id": version_id,
        "version_number": row["version_number"],
        "dag_id": row["dag_id"],
        "bundle_version": row["bundle_digest"],
        "created_at": row["version_created_at"],
    }


def duration(row: Mapping[str, Any]) -> float | None:
    """Seconds from start to end, if both are known."""
    if row["start_date"] is None or row["end_date"] is None:
        return None
    return float((row["end_date"] - row["start_date"]).total_seconds())


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
        "id": str(row["id"]),
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


def shaped_xcom(row: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """An XCom entry of a task instance."""
    return {
        **row,
        "logical_date": task["logical_date"],
        "dag_id": task["dag_id"],
        "run_id": task["run_id"],
        "dag_display_name": task["dag_id"],
        "task_display_name": task["task_id"],
        "run_after": task["run_after"],
    }
