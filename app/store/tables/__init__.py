"""The schema: what alembic's migrations add up to. One module a stage; invariants live here, not in callers."""

from __future__ import annotations

from app.store.tables.assets import asset, asset_watcher, asset_watcher_source
from app.store.tables.base import metadata
from app.store.tables.dags import (
    asset_reference,
    bundle,
    bundle_file,
    dag,
    dag_file,
    dag_version,
    dag_warning,
    import_error,
)
from app.store.tables.events import asset_event, dead_letter, event_body, event_identity, idempotency_key
from app.store.tables.processes import deployment, job, leadership
from app.store.tables.runs import dag_run, dag_run_event, demand, demand_group
from app.store.tables.tasks import state_change, task_instance, xcom
from app.store.tables.triggers import source_position, trigger

__all__ = [
    "asset",
    "asset_event",
    "asset_reference",
    "asset_watcher",
    "asset_watcher_source",
    "bundle",
    "bundle_file",
    "dag",
    "dag_file",
    "dag_run",
    "dag_run_event",
    "dag_version",
    "dag_warning",
    "dead_letter",
    "demand",
    "demand_group",
    "deployment",
    "event_body",
    "event_identity",
    "idempotency_key",
    "import_error",
    "job",
    "leadership",
    "metadata",
    "source_position",
    "state_change",
    "task_instance",
    "trigger",
    "xcom",
]
