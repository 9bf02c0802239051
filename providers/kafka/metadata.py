"""The metadata request that names topics by id (version 10 of the protocol, brokers of 2.8 and later).

The client speaks versions up to 5, which know only names; a topic that was deleted and made anew looks the same there.
Field lists are those of the Kafka protocol guide, "Metadata API (Key: 3)".
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aiokafka import errors as kafka
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

_NO_ID = bytes(16)


class Uuid(AbstractType):  # type: ignore[misc]  # the client is not typed
    """Sixteen bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class MetadataResponse_v10(Response):  # type: ignore[misc]  # noqa: N801  # the client's naming of versions
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("topic_authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class MetadataRequest_v10(RequestStruct):  # type: ignore[misc]  # noqa: N801  # the client's naming of versions
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 10
    RESPONSE_TYPE = MetadataResponse_v10
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicsRequest(Request[MetadataRequest_v5 | MetadataRequest_v10]):  # type: ignore[misc]
    """Asks for named topics; never lets the broker create one that is missing."""

    API_KEY = 3

    def __init__(self, topics: tuple[str, ...]) -> None:
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is MetadataRequest_v10:
            topics: list[tuple[bytes, str, dict[int, bytes]]] = [(_NO_ID, topic, {}) for topic in self._topics]
            return MetadataRequest_v10(topics, False, False, False, {})
        return MetadataRequest_v5(list(self._topics), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as a broker describes it. ``error`` is why it cannot be read; ``leaderless`` partitions have no leader
    at present."""

    topic_id: str | None
    partitions: frozenset[int]
    leaderless: frozenset[int]
    error: Exception | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What a broker says of the cluster and of the topics asked for."""

    cluster_id: str | None
    topics: dict[str, TopicView]


def view_of(response: Any) -> ClusterView:
    """Read a metadata response of either version."""
    values = response.to_object()
    topics: dict[str, TopicView] = {}
    for topic in values["topics"]:
        error = kafka.for_code(topic["error_code"])
        topic_id = topic.get("topic_id") or _NO_ID
        partitions = {entry["partition"]: entry["leader"] for entry in topic["partitions"]}
        topics[topic["topic"]] = TopicView(
            topic_id=None if topic_id == _NO_ID else topic_id.hex(),
            partitions=frozenset(partitions),
            leaderless=frozenset(partition for partition, leader in partitions.items() if leader < 0),
            error=None if error is kafka.NoError else error(topic["topic"]),
        )
    return ClusterView(cluster_id=values.get("cluster_id") or None, topics=topics)
