"""What authors of pipelines, triggers and providers import: watchers, triggers, connections and their errors.

Cheap to import: a library is loaded when something declared needs it.
"""

from __future__ import annotations

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
from watchers.files import FileEventTrigger
from watchers.message_queue import MessageQueueTrigger
from watchers.provider import BaseMessageQueueProvider
from watchers.temporal import DateTimeTrigger, TimeDeltaTrigger
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
