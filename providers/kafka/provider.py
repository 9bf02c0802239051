"""Offers Kafka topics as message queues: ``kafka://host:port[,host:port]/topic[,topic]``."""

from __future__ import annotations

import importlib.util
from typing import Any, ClassVar

from providers.kafka.settings import parse_queue
from watchers.provider import BaseMessageQueueProvider
from watchers.triggers import BaseEventTrigger


class KafkaProvider(BaseMessageQueueProvider):
    """Kafka. With ``scheme="kafka"``, ``topics`` and ``bootstrap_servers`` (or ``connection_id``) say what to read."""

    scheme: ClassVar[str] = "kafka"
    secret_kwargs: ClassVar[frozenset[str]] = frozenset({"sasl_username", "sasl_password", "ssl_password"})

    def trigger_class(self) -> type[BaseEventTrigger]:
        if importlib.util.find_spec("aiokafka") is None:
            raise ImportError("aiokafka is not installed", name="aiokafka")
        from providers.kafka.trigger import KafkaTrigger

        return KafkaTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Raises :class:`WatcherDeclarationError` for an address that is malformed or holds a password."""
        return parse_queue(queue)
