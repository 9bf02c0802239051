"""What a task process is told, and what it answers: values that cross the process border."""

from __future__ import annotations

from typing import Any

import msgspec

from app.domain.specs import AssetKey


class EventValue(msgspec.Struct, frozen=True, kw_only=True):
    """One asset event as a task sees it. ``timestamp`` is ISO 8601 with offset."""

    id: int
    asset: AssetKey
    extra: dict[str, Any]
    timestamp: str
    source_dag_id: str | None = None
    source_task_id: str | None = None
    source_run_id: str | None = None
    source_map_index: int = -1


class RunValue(msgspec.Struct, frozen=True, kw_only=True):
    """The DAG run of an attempt. Moments are ISO 8601 with offset; ``logical_date`` is None if asset-triggered."""

    dag_id: str
    run_id: str
    run_type: str
    run_after: str
    logical_date: str | None = None
    data_interval_start: str | None = None
    data_interval_end: str | None = None
    start_date: str | None = None
    conf: dict[str, Any] = {}
    triggering_asset_events: tuple[EventValue, ...] = ()


class AttemptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run one task instance. ``execution_timeout`` is in seconds, over the whole attempt.

    ``log_limit`` is the largest size of its log, in bytes; 0: none.
    """

    task_instance_id: int
    epoch: int
    task_id: str
    map_index: int
    try_number: int
    max_tries: int
    run: RunValue
    bundle_digest: str
    entry: str
    execution_timeout: float | None = None
    upstream_states: dict[str, str] = {}
    log_path: str = ""
    log_limit: int = 0


class OutletEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event a successful attempt makes of one of its outlets. ``extra`` is a JSON object."""

    asset: AssetKey
    extra: dict[str, Any]


class Succeeded(msgspec.Struct, frozen=True, kw_only=True, tag="succeeded"):
    """``xcoms`` maps keys to canonical texts (``watchers.encoding``); the return value's key is ``return_value``."""

    xcoms: dict[str, str] = {}
    outlet_events: tuple[OutletEvent, ...] = ()


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """``retry`` false means that no further try may help (the author said so)."""

    error: str
    retry: bool = True
    xcoms: dict[str, str] = {}


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag="skipped"):
    """The task skipped itself."""

    reason: str = ""
    xcoms: dict[str, str] = {}


Outcome = Succeeded | Failed | Skipped
