"""What to read: the topics and partitions that the cluster shows, each with the offset where reading goes on."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka import TopicPartition
from aiokafka import errors as kafka

from providers.kafka.errors import describe, translated
from providers.kafka.metadata import ClusterView, TopicView
from providers.kafka.positions import Positions, TopicPositions
from providers.kafka.settings import KafkaSettings
from watchers.errors import SourceError, SourceMisconfigured, SourceUnavailable
from watchers.triggers import PositionUpdate, TriggerEvent

Log: TypeAlias = logging.Logger | logging.LoggerAdapter[logging.Logger]

_GONE = (kafka.UnknownTopicOrPartitionError, kafka.TopicAuthorizationFailedError, kafka.InvalidTopicError)
_UNKNOWN = TopicView(
    topic_id=None,
    partitions=frozenset(),
    leaderless=frozenset(),
    error=kafka.UnknownTopicOrPartitionError(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What to store in one transaction, and the positions that are true once it is stored."""

    items: list[TriggerEvent | PositionUpdate]
    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to read from now on. ``batch`` holds positions to store first (its items may be none) and those of all that
    is read; ``restarted`` is whether a partition that was read already begins anew."""

    wanted: frozenset[TopicPartition]
    batch: Batch
    restarted: bool


class Topics:
    """Knows the positions of a trigger's topics and keeps them in step with what the cluster shows."""

    def __init__(self, settings: KafkaSettings, *, positions: Positions, log: Log) -> None:
        self._settings = settings
        self._positions = positions
        self._log = log

    def known(self, partition: TopicPartition) -> TopicPositions:
        """The positions of the partition's topic."""
        return self._positions.topics[partition.topic]

    def group_id(self, view: ClusterView) -> str:
        """The group as told, or one that names deployment and sources."""
        if self._settings.group_id is not None:
            return self._settings.group_id
        sources = [self._source(view, topic) for topic in self._settings.topics]
        digest = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]
        return f"tidegate.{os.environ.get('TIDEGATE_DEPLOYMENT') or 'local'}.{digest}"

    async def adopt(self, view: ClusterView, *, consumer: Any, assigned: frozenset[TopicPartition]) -> Plan:
        """Decide what to read, and where partitions begin that were not read before. Raises :class:`SourceError`."""
        offsets: dict[TopicPartition, int] = {}
        restarted = False
        for topic in self._settings.topics:
            seen = view.topics.get(topic, _UNKNOWN)
            known = self._positions.of(topic, source=self._source(view, topic))
            if seen.error is None:
                restarted |= self._notice_new_topic(topic, seen=seen, known=known)
                await self._start_new_partitions(topic, seen=seen, known=known, consumer=consumer)
                numbers = seen.partitions
            else:
                numbers = self._despite_error(topic, error=seen.error, assigned=assigned)
                # That there is no such topic is a fact to remember; other errors say nothing of the topic.
                if not known.started and isinstance(seen.error, kafka.UnknownTopicOrPartitionError):
                    known.started = known.unsaved = True
            offsets |= {TopicPartition(topic, n): known.offsets[n] for n in numbers if n in known.offsets}
        items: list[TriggerEvent | PositionUpdate] = []
        for known in self._positions.topics.values():
            if known.unsaved:
                known.unsaved = False
                items.append(PositionUpdate(source=known.source, lanes=known.lanes()))
        return Plan(wanted=frozenset(offsets), batch=Batch(items=items, offsets=offsets), restarted=restarted)

    def note_sources(self, view: ClusterView) -> None:
        """Learn what names the topics' messages; positions are somebody else's."""
        for topic in self._settings.topics:
            self._positions.of(topic, source=self._source(view, topic))

    @staticmethod
    def is_gone(error: Exception) -> bool:
        """Whether a topic of which the cluster says this cannot be read any more."""
        return isinstance(error, _GONE)

    def _source(self, view: ClusterView, topic: str) -> str:
        """Names broker and topic: ``kafka:<cluster id>:<topic>``. A cluster that tells no id is named by the digest of
        its bootstrap addresses, which are sorted."""
        cluster_id = view.cluster_id
        if cluster_id is None:
            cluster_id = hashlib.sha256(",".join(self._settings.bootstrap_servers).encode()).hexdigest()[:22]
        return f"kafka:{cluster_id}:{topic}"

    def _notice_new_topic(self, topic: str, *, seen: TopicView, known: TopicPositions) -> bool:
        """Whether a topic of this name was read before and is not this one: then all of its offsets mean nothing."""
        if seen.topic_id is None or seen.topic_id == known.topic_id:
            return False
        before, known.topic_id = known.topic_id, seen.topic_id
        known.unsaved = known.started
        if before is None:
            return False
        self._log.warning("kafka.recreated: topic %s was deleted and made anew; reading it from its start", topic)
        known.offsets = dict.fromkeys(known.offsets, 0)
        return True

    async def _start_new_partitions(self, topic: str, *, seen: TopicView, known: TopicPositions, consumer: Any) -> None:
        if not known.started and seen.leaderless:
            return  # a first start is one for the whole topic, or "latest" would mean two moments
        new = sorted(seen.partitions - known.offsets.keys() - seen.leaderless)
        if not new:
            return
        latest = not known.started and self._settings.auto_offset_reset == "latest"
        with translated(f"asking where {topic} begins"):
            ask = consumer.end_offsets if latest else consumer.beginning_offsets
            begins: dict[TopicPartition, int] = await ask([TopicPartition(topic, number) for number in new])
        known.offsets |= {partition.partition: offset for partition, offset in begins.items()}
        known.started = known.unsaved = True
        self._log.info("kafka.partitions: reading %s partitions %s", topic, new)

    @staticmethod
    def _despite_error(topic: str, *, error: Exception, assigned: frozenset[TopicPartition]) -> frozenset[int]:
        """What to go on reading of a topic that the cluster cannot describe: all, unless it is gone or forbidden."""
        if isinstance(error, _GONE):
            return frozenset()
        return frozenset(partition.partition for partition in assigned if partition.topic == topic)


def trouble_of(view: ClusterView, topics: Sequence[str]) -> SourceError | None:
    """Why some of ``topics`` cannot be read at present, or ``None``."""
    for topic in topics:
        seen = view.topics.get(topic, _UNKNOWN)
        if isinstance(seen.error, _GONE):
            return SourceMisconfigured(f"topic {topic} cannot be read: {describe(seen.error)}")
        if seen.error is not None:
            return SourceUnavailable(f"topic {topic} cannot be read: {describe(seen.error)}")
        if seen.leaderless:
            return SourceUnavailable(f"topic {topic} has no leader for partitions {sorted(seen.leaderless)}")
    return None
