"""A DAG as plain values, and the checks that need all of it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from app.domain.specs import AssetKey, AssetSpec, DagSpec, ScheduleKind, TaskSpec, TriggerSpec, WatcherSpec
from app.sdk.assets import Asset
from app.sdk.dag import DAG
from app.sdk.errors import DeclarationError
from app.sdk.module_files import is_below
from app.sdk.operators.base import BaseOperator
from watchers.describe import describe_trigger
from watchers.encoding import MAX_KWARGS_BYTES
from watchers.errors import EncodingRefused, WatcherDeclarationError
from watchers.triggers import BaseTrigger
from watchers.watcher import checked_schema


def describe_dag(dag: DAG, *, root: Path, file: str, max_kwargs_bytes: int = MAX_KWARGS_BYTES) -> DagSpec:
    """The plain value of ``dag``. Raises what is wrong with it, each message naming the DAG.

    ``max_kwargs_bytes`` is the size of the largest arguments of a trigger, encoded.
    """
    try:
        if dag.schedule_spec.kind is ScheduleKind.CONTINUOUS and not dag.tasks:
            raise DeclarationError("schedule='@continuous' needs at least one task: runs would end as they start")
        dag.topological_sort()
        tasks = tuple(_describe_task(task) for task in dag.tasks)
        assets = _describe_assets(dag, root=root, max_kwargs_bytes=max_kwargs_bytes)
    except (DeclarationError, EncodingRefused, WatcherDeclarationError) as error:
        raise DeclarationError(f"DAG {dag.dag_id!r}: {error}") from error
    return _checked(_spec(dag, tasks, assets, root=root, file=file))


def _checked(spec: DagSpec) -> DagSpec:
    """``spec`` as it will arrive, so that a value of a wrong type is told to its author."""
    try:
        return msgspec.json.decode(msgspec.json.encode(spec), type=DagSpec)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DeclarationError(f"DAG {spec.dag_id!r}: a declared value is of a wrong kind: {error}") from error


def _spec(dag: DAG, tasks: tuple[TaskSpec, ...], assets: tuple[AssetSpec, ...], *, root: Path, file: str) -> DagSpec:
    entry = str(root / file)
    return DagSpec(
        dag_id=dag.dag_id,
        fileloc=file,
        schedule=dag.schedule_spec,
        tasks=tasks,
        assets=assets,
        description=dag.description,
        display_name=dag.dag_display_name,
        tags=dag.tags,
        owners=tuple(dict.fromkeys(task.owner for task in dag.tasks)),
        max_active_runs=dag.max_active_runs,
        max_active_tasks=dag.max_active_tasks,
        catchup=dag.catchup,
        start_date=None if dag.start_date is None else dag.start_date.isoformat(),
        end_date=None if dag.end_date is None else dag.end_date.isoformat(),
        dagrun_timeout=None if dag.dagrun_timeout is None else dag.dagrun_timeout.total_seconds(),
        params=dag.params,
        is_paused_upon_creation=dag.is_paused_upon_creation,
        line=next((line for place, line in dag.declared_at if place == entry), None),
    )


def _describe_task(task: BaseOperator) -> TaskSpec:
    return TaskSpec(
        task_id=task.task_id,
        operator=task.task_type,
        upstream=tuple(sorted(task.upstream_task_ids)),
        trigger_rule=str(task.trigger_rule),
        retries=task.retries,
        retry_delay=task.retry_delay.total_seconds(),
        retry_exponential_backoff=task.retry_exponential_backoff,
        max_retry_delay=None if task.max_retry_delay is None else task.max_retry_delay.total_seconds(),
        execution_timeout=None if task.execution_timeout is None else task.execution_timeout.total_seconds(),
        pool=task.pool,
        pool_slots=task.pool_slots,
        priority_weight=task.priority_weight,
        queue=task.queue,
        inlets=tuple(asset.key for asset in task.inlets),
        outlets=tuple(asset.key for asset in task.outlets),
        doc=task.doc or task.doc_md,
        has_callbacks=any(
            (task.on_execute_callback, task.on_success_callback, task.on_failure_callback, task.on_retry_callback,
             task.on_skipped_callback)
        ),
    )  # fmt: skip


def _describe_assets(dag: DAG, *, root: Path, max_kwargs_bytes: int) -> tuple[AssetSpec, ...]:
    """Each asset once: mentions without watchers, extra or group of their own add nothing to one that has them."""
    merged: dict[AssetKey, AssetSpec] = {}
    for asset in dag.assets():
        spec = _describe_asset(asset, root=root, max_kwargs_bytes=max_kwargs_bytes)
        known = merged.get(asset.key)
        merged[asset.key] = spec if known is None else _merged(known, spec)
    return tuple(merged.values())


def _describe_asset(asset: Asset, *, root: Path, max_kwargs_bytes: int) -> AssetSpec:
    watchers = []
    for watcher in asset.watchers:
        try:
            trigger = _describe_trigger(watcher.trigger, root=root, max_kwargs_bytes=max_kwargs_bytes)
            schema = None if watcher.schema is None else checked_schema(watcher.schema, watcher=watcher.name)
        except (EncodingRefused, WatcherDeclarationError) as error:
            raise DeclarationError(f"asset {asset.name!r} watcher {watcher.name!r}: {error}") from error
        watchers.append(WatcherSpec(name=watcher.name, trigger=trigger, when=watcher.when, schema=schema))
    return AssetSpec(name=asset.name, uri=asset.uri, group=asset.group, extra=asset.extra, watchers=tuple(watchers))


def _describe_trigger(trigger: BaseTrigger, *, root: Path, max_kwargs_bytes: int) -> TriggerSpec:
    described = describe_trigger(trigger, max_bytes=max_kwargs_bytes)
    return TriggerSpec(
        classpath=described.classpath,
        kwargs=described.kwargs_text,
        identity=described.identity,
        queue=described.queue,
        in_bundle=_is_in_bundle(described.classpath, root),
        acknowledges=described.acknowledges,
    )


def _is_in_bundle(classpath: str, root: Path) -> bool:
    module_name = classpath
    while module_name := module_name.rpartition(".")[0]:
        if module := sys.modules.get(module_name):
            return is_below(root, getattr(module, "__file__", None) or "")
    return False


def _merged(first: AssetSpec, second: AssetSpec) -> AssetSpec:
    watchers = {watcher.name: watcher for watcher in first.watchers}
    for watcher in second.watchers:
        if watchers.setdefault(watcher.name, watcher) != watcher:
            raise DeclarationError(f"asset {first.name!r}: two different watchers are called {watcher.name!r}")
    return AssetSpec(
        name=first.name,
        uri=first.uri,
        group=first.group if first.group != "asset" else second.group,
        extra=first.extra or second.extra,
        watchers=tuple(watchers.values()),
    )
