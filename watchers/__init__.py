"""What authors of pipelines, triggers and providers import: watchers, triggers, connections and their errors.

Cheap to import: a library is loaded when something declared needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from watchers.connections import Connection, get_connection, get_variable
from watchers.errors import (
    AmbiguousQueue,
    ConnectionMalformed,
    ConnectionNotFound,
    EncodingRefused,
    PayloadRefused,
    ProviderUnavailable,
    SourceError,
    SourceMisconfigured,
    SourceUnavailable,
    UnknownQueue,
    VariableNotFound,
    WatcherDeclarationError,
    WatcherError,
)
from watchers.message_queue import MessageQueueTrigger
from watchers.provider import BaseMessageQueueProvider
from watchers.triggers import (
    BaseEventTrigger,
    BaseTrigger,
    PositionUpdate,
    SourceStatus,
    TaskFailedEvent,
    TaskSkippedEvent,
    TaskSuccessEvent,
    TriggerEvent,
)
from watchers.watcher import AssetWatcher

if TYPE_CHECKING:
    from watchers.files import FileEventTrigger
    from watchers.temporal import DateTimeTrigger, TimeDeltaTrigger

#: These bring an event loop along, which half the start-up time of a pipeline file would go into.
_ON_DEMAND = {
    "DateTimeTrigger": "watchers.temporal",
    "FileEventTrigger": "watchers.files",
    "TimeDeltaTrigger": "watchers.temporal",
}

__all__ = [
    "AmbiguousQueue",
    "AssetWatcher",
    "BaseEventTrigger",
    "BaseMessageQueueProvider",
    "BaseTrigger",
    "Connection",
    "ConnectionMalformed",
    "ConnectionNotFound",
    "DateTimeTrigger",
    "EncodingRefused",
    "FileEventTrigger",
    "MessageQueueTrigger",
    "PayloadRefused",
    "PositionUpdate",
    "ProviderUnavailable",
    "SourceError",
    "SourceMisconfigured",
    "SourceStatus",
    "SourceUnavailable",
    "TaskFailedEvent",
    "TaskSkippedEvent",
    "TaskSuccessEvent",
    "TimeDeltaTrigger",
    "TriggerEvent",
    "UnknownQueue",
    "VariableNotFound",
    "WatcherDeclarationError",
    "WatcherError",
    "get_connection",
    "get_variable",
]


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(importlib.import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
