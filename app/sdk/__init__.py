"""What pipeline files import."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from app.domain.trigger_rules import TriggerRule
from app.sdk.assets import Asset, AssetAll, AssetAny, AssetSchedule, Batch, Metadata
from app.sdk.context import Context, get_current_context
from app.sdk.dag import DAG, dag
from app.sdk.decorators import task
from app.sdk.edges import chain, cross_downstream
from app.sdk.errors import FailTask, SkipTask, TaskTimeout
from app.sdk.late_values import XComArg
from app.sdk.operators.base import BaseOperator
from app.sdk.operators.bash import BashOperator
from app.sdk.operators.empty import EmptyOperator
from app.sdk.operators.python import PythonOperator
from app.sdk.params import Param
from app.sdk.task_groups import TaskGroup, task_group
from app.sdk.variables import Variable
from watchers.connections import Connection, get_connection
from watchers.message_queue import MessageQueueTrigger
from watchers.triggers import BaseEventTrigger, BaseTrigger, TriggerEvent
from watchers.watcher import AssetWatcher

if TYPE_CHECKING:
    from watchers.files import FileEventTrigger
    from watchers.temporal import DateTimeTrigger, TimeDeltaTrigger

#: Triggers bring an event loop along; files that declare none are spared it.
_ON_DEMAND = {
    "DateTimeTrigger": "watchers.temporal",
    "FileEventTrigger": "watchers.files",
    "TimeDeltaTrigger": "watchers.temporal",
}

__all__ = [
    "DAG",
    "Asset",
    "AssetAll",
    "AssetAny",
    "AssetSchedule",
    "AssetWatcher",
    "BaseEventTrigger",
    "BaseOperator",
    "BaseTrigger",
    "BashOperator",
    "Batch",
    "Connection",
    "Context",
    "DateTimeTrigger",
    "EmptyOperator",
    "FailTask",
    "FileEventTrigger",
    "MessageQueueTrigger",
    "Metadata",
    "Param",
    "PythonOperator",
    "SkipTask",
    "TaskGroup",
    "TaskTimeout",
    "TimeDeltaTrigger",
    "TriggerEvent",
    "TriggerRule",
    "Variable",
    "XComArg",
    "chain",
    "cross_downstream",
    "dag",
    "get_connection",
    "get_current_context",
    "task",
    "task_group",
]


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(importlib.import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
