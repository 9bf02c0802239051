"""Where a trigger may run: its queue, and the team it belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import msgspec

from app.domain.specs import AssetSpec, DagSpec, LoadResult, TriggerSpec, WatcherSpec


def team_of(file: str, team_folders: Collection[str]) -> str | None:
    """The team of a pipeline file: its first folder, if that is one of ``team_folders``; None belongs to nobody."""
    folder, separator, _ = file.partition("/")
    return folder if separator and folder in team_folders else None


def in_team(result: LoadResult, team: str | None) -> LoadResult:
    """What a file of ``team`` declares. Equal triggers of several teams are different ones: each team runs its own."""
    if team is None:
        return result
    return msgspec.structs.replace(result, dags=tuple(_dag_in_team(dag, team) for dag in result.dags))


def queue_of_deferral(task_queue: str, *, queues_enabled: bool) -> str | None:
    """The queue of the trigger for which a task waits: that of the task if triggerers serve queues, else none."""
    return task_queue if queues_enabled else None


def _dag_in_team(dag: DagSpec, team: str) -> DagSpec:
    return msgspec.structs.replace(dag, assets=tuple(_asset_in_team(asset, team) for asset in dag.assets))


def _asset_in_team(asset: AssetSpec, team: str) -> AssetSpec:
    return msgspec.structs.replace(asset, watchers=tuple(_watcher_in_team(each, team) for each in asset.watchers))


def _watcher_in_team(watcher: WatcherSpec, team: str) -> WatcherSpec:
    return msgspec.structs.replace(watcher, trigger=_trigger_in_team(watcher.trigger, team))


def _trigger_in_team(trigger: TriggerSpec, team: str) -> TriggerSpec:
    identity = hashlib.sha256(f"{team}\0{trigger.identity}".encode()).hexdigest()
    return msgspec.structs.replace(trigger, team=team, identity=identity)
