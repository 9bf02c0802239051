"""Shared by the Kafka provider's tests."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from providers.kafka import KafkaTrigger
from tests.contracts.ledger import Ledger, eventually
from tests.services.kafka_client import KafkaClient


def trigger(client: KafkaClient, *topics: str, **options: Any) -> KafkaTrigger:
    """A trigger whose patience suits a test."""
    quick = {"request_timeout": 5.0, "metadata_refresh": 0.5, "group_id": f"group-{topics[0]}"}
    return KafkaTrigger(topics=topics, bootstrap_servers=client.bootstrap, **{**quick, **options})


def numbered(count: int, *, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def values(ledger: Ledger) -> list[Any]:
    return [event.payload["value"] for event in ledger.events]


def by_partition(ledger: Ledger) -> dict[int, list[int]]:
    """The offsets of the events, in their order of arrival, per partition."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for event in ledger.events:
        offsets[event.payload["partition"]].append(event.payload["offset"])
    return dict(offsets)


def lanes(ledger: Ledger) -> dict[str, Any]:
    """The stored lanes of the one source."""
    ((_, stored),) = ledger.positions.items()
    return stored


async def until_committed(client: KafkaClient, topic: str, expected: dict[int, int]) -> None:
    """Until the group's offsets are these."""

    async def reached() -> bool:
        return await client.committed(topic, group=f"group-{topic}") == expected

    await eventually(reached)
