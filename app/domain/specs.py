"""What a pipeline file declares, as plain values.

The loader child builds these from the author's objects; they travel as JSON to the dag processor, rest in the database
with each DAG version, and are all that scheduler, executor and API ever see of a pipeline file.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """Base of the declared values: immutable, compared by value, encoded as JSON without default values."""


class TriggerSpec(Spec, frozen=True):
    """An event trigger as declared: enough to build it in a runner, and its identity.

    ``kwargs`` is the canonical text of ``watchers.encoding``; ``identity`` the SHA-256 (hex) over both.
    ``in_bundle`` is true if the class comes from a module of the pipelines folder, so that a runner needs that code;
    ``acknowledges`` if its source never offers a message again that was acknowledged or passed by a position.
    ``queue`` is no part of the identity; ``team`` is (see ``app.domain.placement``).
    """

    classpath: str
    kwargs: str
    identity: str
    queue: str | None = None
    team: str | None = None
    in_bundle: bool = False
    acknowledges: bool = False


class WatcherSpec(Spec, frozen=True):
    """An asset watcher: name, trigger, and the filter and schema (canonical JSON text) applied at fan-out."""

    name: str
    trigger: TriggerSpec
    when: str | None = None
    schema: str | None = None


class AssetSpec(Spec, frozen=True):
    """An asset as declared. ``(name, uri)`` is its identity; passwords are already gone from both."""

    name: str
    uri: str
    group: str = "asset"
    extra: dict[str, Any] = {}
    watchers: tuple[WatcherSpec, ...] = ()


class AssetKey(Spec, frozen=True):
    """The identity of an asset."""

    name: str
    uri: str


class AssetLeaf(Spec, frozen=True, tag="asset"):
    """A condition that holds once the asset has a pending event."""

    name: str
    uri: str


class AnyOf(Spec, frozen=True, tag="any"):
    """Holds if one of its members holds."""

    members: tuple[Condition, ...]


class AllOf(Spec, frozen=True, tag="all"):
    """Holds if all of its members hold."""

    members: tuple[Condition, ...]


Condition = AssetLeaf | AnyOf | AllOf


class BatchSpec(Spec, frozen=True):
    """Collect completed groups into one run; closed at the first limit reached. ``max_wait`` is in seconds."""

    max_events: int | None = None
    max_wait: float | None = None


class ScheduleKind(StrEnum):
    """How runs of a DAG come to be."""

    NONE = "none"
    ONCE = "once"
    CONTINUOUS = "continuous"
    CRON = "cron"
    DELTA = "delta"
    ASSETS = "assets"


class ScheduleSpec(Spec, frozen=True):
    """A schedule. Only what its ``kind`` needs is set: ``cron``, ``timezone``; ``delta`` (seconds); ``condition``."""

    kind: ScheduleKind = ScheduleKind.NONE
    cron: str | None = None
    timezone: str = "UTC"
    delta: float | None = None
    condition: Condition | None = None
    batch: BatchSpec | None = None
    summary: str = ""


class TaskSpec(Spec, frozen=True):
    """One task of a DAG. Durations are in seconds."""

    task_id: str
    operator: str
    upstream: tuple[str, ...] = ()
    trigger_rule: str = "all_success"
    retries: int = 0
    retry_delay: float = 300.0
    retry_exponential_backoff: bool = False
    max_retry_delay: float | None = None
    execution_timeout: float | None = None
    pool: str = "default_pool"
    pool_slots: int = 1
    priority_weight: int = 1
    queue: str = "default"
    inlets: tuple[AssetKey, ...] = ()
    outlets: tuple[AssetKey, ...] = ()
    doc: str | None = None
    has_callbacks: bool = False


class DagSpec(Spec, frozen=True):
    """One DAG of a pipeline file. ``None`` for a limit means the setting's default."""

    dag_id: str
    fileloc: str
    schedule: ScheduleSpec = ScheduleSpec()
    tasks: tuple[TaskSpec, ...] = ()
    assets: tuple[AssetSpec, ...] = ()
    description: str | None = None
    display_name: str | None = None
    tags: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    max_active_runs: int | None = None
    max_active_tasks: int | None = None
    catchup: bool = False
    start_date: str | None = None
    end_date: str | None = None
    dagrun_timeout: float | None = None
    params: dict[str, Any] = {}
    is_paused_upon_creation: bool | None = None
    line: int | None = None


class LocatedError(Spec, frozen=True):
    """Why a pipeline file, or one thing in it, was refused. ``file`` is relative to the pipelines folder."""

    file: str
    message: str
    line: int | None = None
    traceback: str | None = None


class LoadResult(Spec, frozen=True):
    """All that a loader child says about one pipeline file.

    ``modules`` are the files below the pipelines folder that the import loaded, the pipeline file included (relative
    paths). With an ``error`` there are no DAGs.
    """

    file: str
    dags: tuple[DagSpec, ...] = ()
    modules: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: LocatedError | None = None
    duration: float = 0.0
    #: Calls in its trigger classes that would stop the event loop of all triggers.
    blocking_calls: tuple[str, ...] = ()


def condition_assets(condition: Condition) -> tuple[AssetKey, ...]:
    """The assets a condition names, each once, in the order they are declared."""
    seen: dict[AssetKey, None] = {}
    pending: list[Condition] = [condition]
    while pending:
        match pending.pop(0):
            case AssetLeaf(name=name, uri=uri):
                seen.setdefault(AssetKey(name=name, uri=uri))
            case AnyOf(members=members) | AllOf(members=members):
                pending = [*members, *pending]
    return tuple(seen)
