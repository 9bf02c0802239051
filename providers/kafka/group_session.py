"""A session that shares partitions with the other members of a consumer group (``assignment="group"``).

Who reads which partition is the broker's decision, and the position is the group's committed offset. It is committed
only after what it stands for is stored; what comes again, because the partition went to another member before that, is
recognised by its identity.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka
from aiokafka.abc import ConsumerRebalanceListener

from providers.kafka.errors import translated
from providers.kafka.positions import Positions
from providers.kafka.session import TICK_SECONDS, Session
from providers.kafka.settings import KafkaSettings
from providers.kafka.topics import Batch, Log
from watchers.errors import SourceError, SourceUnavailable
from watchers.triggers import PositionUpdate, TriggerEvent

#: Longest that joining the group may take, beyond the session time-out of a member that died, in seconds.
JOIN_SECONDS = 60.0
#: Longest that leaving the group may take, in seconds.
LEAVE_SECONDS = 2.0
#: The group's protocol: the member must not be put out because storing takes long; heartbeats go on meanwhile.
_LONGEST_PAUSE_MS = 24 * 3600 * 1000


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # the client is not typed
    """Notes that the assignment changed; what to do about it is done where messages are read."""

    def __init__(self) -> None:
        self.has_changed = False

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.has_changed = True

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.has_changed = True


class GroupSession(Session):
    """See the module. Used as its base is."""

    def __init__(self, settings: KafkaSettings, *, positions: Positions, log: Log) -> None:
        super().__init__(settings, positions=positions, log=log)
        self._rebalances = _Rebalances()
        self._subscribed: tuple[str, ...] = ()
        self._topic_ids: dict[str, str] = {}
        #: How far this session stored, committed or not.
        self._done: dict[TopicPartition, int] = {}
        self._waits_since = time.monotonic()

    def _consumer_options(self) -> dict[str, Any]:
        assert self._view is not None
        session = int(self._settings.session_timeout * 1000)
        return {
            "group_id": self._topics.group_id(self._view),
            "session_timeout_ms": session,
            "heartbeat_interval_ms": session // 4,
            "max_poll_interval_ms": _LONGEST_PAUSE_MS,
        }

    @property
    def healthy(self) -> bool:
        """Whether it is a member of the group, and every partition it has been given answers."""
        is_settled = not self._rebalances.has_changed and self._assigned <= self._given()
        return bool(self._subscribed) and self._is_member() and is_settled and super().healthy

    async def stored(self, batch: Batch) -> None:
        """``batch`` is committed in the store: commit its offsets. Raises :class:`SourceError`."""
        self._resume_clocks()
        self._done |= batch.offsets
        offsets = {partition: offset for partition, offset in batch.offsets.items() if partition in self._given()}
        await self._commit(offsets)

    # -- the group -------------------------------------------------------------------------------------------------

    def _is_member(self) -> bool:
        subscription = self._consumer._subscription.subscription
        return subscription is not None and subscription.assignment is not None

    def _given(self) -> frozenset[TopicPartition]:
        return frozenset(self._consumer.assignment())

    async def _adopt_view(self) -> Batch | None:
        """Subscribe to the topics that there are."""
        assert self._view is not None
        self._topics.note_sources(self._view)
        there = tuple(topic for topic in self._settings.topics if self._is_there(topic))
        for topic in there:
            self._notice_new_topic(topic)
        if there != self._subscribed:
            self._subscribed = there
            self._waits_since = time.monotonic()
            if there:
                self._consumer.subscribe(topics=list(there), listener=self._rebalances)
            else:
                self._consumer.unsubscribe()
            self._rebalances.has_changed = True
        return None

    def _is_there(self, topic: str) -> bool:
        seen = None if self._view is None else self._view.topics.get(topic)
        if seen is None:
            return topic in self._subscribed
        return seen.error is None or (topic in self._subscribed and not self._topics.is_gone(seen.error))

    def _notice_new_topic(self, topic: str) -> None:
        """A topic that was deleted and made anew is read from its start: what was done of the old one means nothing."""
        seen = None if self._view is None else self._view.topics.get(topic)
        if seen is None or seen.topic_id is None:
            return
        before = self._topic_ids.get(topic)
        self._topic_ids[topic] = seen.topic_id
        if before not in {None, seen.topic_id}:
            self._log.warning("kafka.recreated: topic %s was deleted and made anew", topic)
            self._done = {partition: offset for partition, offset in self._done.items() if partition.topic != topic}
            self._rebalances.has_changed = True

    async def _assign_wanted(self) -> None:
        """Take what the group gives: from the committed offset, or what was stored beyond it."""
        if not self._rebalances.has_changed:
            return
        self._rebalances.has_changed = False
        self._fetched.clear()
        self._assigned, self._answered = frozenset(), {}
        given = self._given()
        try:
            with translated("asking where the group stands"):
                await self._place(given)
        except SourceUnavailable as error:
            if not isinstance(error.__cause__, kafka.IllegalStateError):
                raise
            self._rebalances.has_changed = True  # It was given to another meanwhile.
            return
        self._assigned = given
        if given:
            names = ", ".join(f"{partition.topic}/{partition.partition}" for partition in sorted(given))
            self._log.info("kafka.group: reading %s", names)

    async def _place(self, given: frozenset[TopicPartition]) -> None:
        first: dict[TopicPartition, int] = {}
        for topic in sorted({partition.topic for partition in given}):
            mine = sorted(partition for partition in given if partition.topic == topic)
            committed = {partition: await self._consumer.committed(partition) for partition in mine}
            new = [partition for partition, offset in committed.items() if offset is None]
            begins = await self._begin(topic, new) if new else {}
            first |= begins
            for partition in mine:
                offset = max(committed[partition] or begins.get(partition, 0), self._done.get(partition, 0))
                self._topics.known(partition).offsets[partition.partition] = offset
                self._consumer.seek(partition, offset)
        # At once: a start that is broken off before the first message must not begin elsewhere the next time.
        await self._commit(first)

    async def _begin(self, topic: str, new: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions begin that the group has not read: as told at its first start, else at their start."""
        latest = self._settings.auto_offset_reset == "latest" and not await self._has_started(topic, without=new)
        ask = self._consumer.end_offsets if latest else self._consumer.beginning_offsets
        found: dict[TopicPartition, int] = await ask(new)
        return found

    async def _has_started(self, topic: str, *, without: list[TopicPartition]) -> bool:
        seen = None if self._view is None else self._view.topics.get(topic)
        others = {TopicPartition(topic, number) for number in (seen.partitions if seen else ())} - set(without)
        for partition in sorted(others):
            if await self._consumer.committed(partition) is not None:
                return True
        return False

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        if not offsets:
            return
        try:
            with translated("committing the group's offsets"):
                async with asyncio.timeout(self._settings.request_timeout):
                    await self._consumer.commit(offsets)
        except SourceUnavailable as error:
            if not isinstance(error.__cause__, (kafka.CommitFailedError, kafka.IllegalStateError)):
                raise
            self._log.info("kafka.group: the partitions went to others before their offsets were committed")

    # -- fetching --------------------------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        if not self._subscribed:
            await asyncio.sleep(TICK_SECONDS / 4)
            return
        if self._is_member():
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since > JOIN_SECONDS + self._settings.session_timeout:
            raise SourceUnavailable("the group lets this member not in")
        try:
            await self._fetch_some()
        except SourceError as error:
            if not isinstance(error.__cause__, kafka.NoOffsetForPartitionError):
                raise
            self._rebalances.has_changed = True  # The client looked before it was told where to begin.
        if self._rebalances.has_changed:
            self._fetched.clear()

    def _note_answers(self) -> None:
        self._assigned &= self._given()
        super()._note_answers()

    async def _skipped_ahead(self) -> Batch | None:
        if self._rebalances.has_changed:
            return None
        with contextlib.suppress(kafka.IllegalStateError):
            return await super()._skipped_ahead()
        return None

    def _moved(self, items: list[TriggerEvent | PositionUpdate], offsets: dict[TopicPartition, int]) -> Batch:
        """The positions are the group's, not ours."""
        for partition, offset in offsets.items():
            self._topics.known(partition).offsets[partition.partition] = offset
        return Batch(items=items, offsets=offsets)

    # -- the end ---------------------------------------------------------------------------------------------------

    async def _stop_consumer(self) -> None:
        """Leave the group, so that others get the partitions at once; a broker that is mute is not waited for long."""
        consumer = self._consumer
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await consumer.stop()
        except (TimeoutError, asyncio.CancelledError):
            coordinator = consumer._coordinator
            names = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task")
            tasks = [task for name in names if (task := getattr(coordinator, name, None)) is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            # Whatever came of it: nothing may be left open, and the client lets cancellations of its own tasks out.
            for close in (consumer._fetcher.close, consumer._client.close):
                with contextlib.suppress(asyncio.CancelledError, kafka.KafkaError):
                    await close()
