"""Brokers for the Kafka provider's tests."""

from __future__ import annotations

from tests.services.fixtures_kafka import kafka_client, own_kafka_service, shared_kafka_service

__all__ = ["kafka_client", "own_kafka_service", "shared_kafka_service"]
