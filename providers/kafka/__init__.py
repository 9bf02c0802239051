"""Kafka: topics as message queues. Importing this package does not import the client."""

from __future__ import annotations

from providers.kafka.provider import KafkaProvider
from providers.kafka.trigger import KafkaTrigger

__all__ = ["KafkaProvider", "KafkaTrigger"]
