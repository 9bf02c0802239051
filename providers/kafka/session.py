"""One connected life of a Kafka trigger: from connecting until the first failure.

A :class:`Session` never reconnects; :mod:`providers.kafka.trigger` opens the next one, and the positions, which outlive
a session, say where to go on. Two background tasks belong to a session and end with it: one looks at the cluster's
metadata, one copies positions into the consumer group.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka

from providers.kafka.cluster import Cluster, client_options, unbroken
from providers.kafka.errors import translated
from providers.kafka.metadata import ClusterView
from providers.kafka.offset_copy import OffsetCopy
from providers.kafka.positions import Positions
from providers.kafka.records import Record, event_of
from providers.kafka.settings import KafkaSettings
from providers.kafka.topics import Batch, Log, Topics, trouble_of
from watchers.errors import SourceError, SourceUnavailable
from watchers.triggers import PositionUpdate, TriggerEvent

#: The longest a call of :meth:`Session.next_batch` waits: how late a failure of a background task is noticed.
TICK_SECONDS = 1.0
#: A partition whose fetches go unanswered this much longer than the deadline of one request is given up.
STALL_MARGIN_SECONDS = 5.0
#: Messages of one batch hold at most this many bytes, the last one apart.
MAX_BATCH_BYTES = 4 << 20
#: Decoding gives way to the loop after this many bytes.
DECODE_SLICE_BYTES = 256 << 10
CLOSE_SECONDS = 5.0


class Session:
    """Reads some topics from their positions. Use :meth:`open`, then :meth:`next_batch` and :meth:`stored` in turn,
    and :meth:`close` in any case."""

    def __init__(self, settings: KafkaSettings, *, positions: Positions, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._topics = Topics(settings, positions=positions, log=log)
        self._cluster = Cluster(settings)
        self._consumer: Any = None
        self._view: ClusterView | None = None
        self._view_is_new = False
        self._failure: SourceError | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._copy: OffsetCopy | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._fetched: deque[Record] = deque()
        self._answered: dict[TopicPartition, tuple[int | None, float]] = {}
        #: Why some of the topics cannot be read at present; cleared and set by each look at the metadata.
        self.trouble: SourceError | None = None

    async def open(self) -> None:
        """Connect. Raises :class:`SourceError`."""
        server = await self._cluster.open()
        self._see(await self._cluster.view())
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=server,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            fetch_min_bytes=1,
            fetch_max_wait_ms=500,
            fetch_max_bytes=16 << 20,
            max_partition_fetch_bytes=1 << 20,
            metadata_max_age_ms=30_000,
            **client_options(self._settings),
            **self._consumer_options(),
        )
        with translated("connecting"):
            await unbroken(self._consumer.start())
        self._watch_task = asyncio.create_task(self._watch(), name="kafka metadata")

    def _consumer_options(self) -> dict[str, Any]:
        """More options of the client that fetches."""
        return {}

    async def close(self, *, flush: bool) -> None:
        """End tasks and connections in bounded time. ``flush``: first write the copy of what is stored."""
        copy, self._copy = self._copy, None
        if copy is not None:
            await copy.close(flush=flush)
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.wait([self._watch_task])
        # In tasks of their own: the client swallows cancellations while it closes, and lets its own out.
        closing = [asyncio.create_task(self._cluster.close())]
        if self._consumer is not None:
            closing.append(asyncio.create_task(self._stop_consumer()))
        try:
            await asyncio.wait(closing, timeout=CLOSE_SECONDS)
        finally:
            for task in closing:
                task.cancel()
        if not all(task.done() and not task.cancelled() and task.exception() is None for task in closing):
            self._log.warning("kafka.close: a connection did not close cleanly")

    async def _stop_consumer(self) -> None:
        """``stop()`` of the client breaks off, and leaves connections open, if a fetch is between two attempts. Without
        an assignment the client ends its fetches first, in a way that is safe."""
        self._consumer.unsubscribe()
        for _ in range(10):
            await asyncio.sleep(0)
        try:
            await self._consumer.stop()
        except asyncio.CancelledError:
            await self._consumer._client.close()

    @property
    def healthy(self) -> bool:
        """Whether every partition has answered a fetch of this session, and no topic is missing."""
        return self.trouble is None and all(
            self._consumer.last_poll_timestamp(partition) is not None for partition in self._assigned
        )

    async def next_batch(self) -> Batch | None:
        """The next messages or changed positions; ``None`` after a quiet second. Raises :class:`SourceError`."""
        self._raise_failure()
        if self._view_is_new:
            self._view_is_new = False
            batch = await self._adopt_view()
            if batch is not None:
                return batch
        await self._assign_wanted()
        if not self._fetched:
            await self._fetch()
        if self._fetched:
            return await self._build_batch()
        self._raise_failure()
        self._check_answers()
        return await self._skipped_ahead()

    async def stored(self, batch: Batch) -> None:
        """``batch`` is committed: let the group's copy follow."""
        self._resume_clocks()
        if self._copy is not None:
            self._copy.update(batch.offsets)

    async def lag(self) -> int | None:
        """Messages between what was handed out and the ends of the partitions that are read; ``None`` before that is
        known. Raises :class:`SourceError`."""
        partitions = [partition for partition in self._assigned if not self._is_leaderless(partition)]
        if not partitions:
            return 0 if self._view is not None and not self._wanted else None
        with translated("asking where partitions end"):
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        known = {partition: self._topics.known(partition).offsets.get(partition.partition) for partition in ends}
        return sum(max(0, ends[partition] - offset) for partition, offset in known.items() if offset is not None)

    def _is_leaderless(self, partition: TopicPartition) -> bool:
        """The client would wait for a leader."""
        seen = None if self._view is None else self._view.topics.get(partition.topic)
        return seen is None or partition.partition in seen.leaderless or partition.partition not in seen.partitions

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _see(self, view: ClusterView) -> None:
        self._view = view
        self._view_is_new = True
        self.trouble = trouble_of(view, self._settings.topics)

    async def _watch(self) -> None:
        """Look at the metadata again and again; two failures in a row end the session."""
        failures = 0
        while True:
            period = self._settings.metadata_refresh if self.trouble is None else 1.0
            await asyncio.sleep(min(period, 1.0) if failures else period)
            try:
                self._see(await self._cluster.view())
                failures = 0
            except SourceError as error:
                failures += 1
                if failures > 1:
                    self._failure = error
                    return

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._watch_task is not None and self._watch_task.done():
            self._watch_task.result()

    async def _adopt_view(self) -> Batch | None:
        """Decide anew what to read, by what the cluster shows now."""
        assert self._view is not None
        if self._copy is None:
            self._copy = OffsetCopy(self._cluster, group_id=self._topics.group_id(self._view), log=self._log)
        plan = await self._topics.adopt(self._view, consumer=self._consumer, assigned=self._assigned)
        self._wanted = plan.wanted
        if plan.restarted:
            self._assigned = frozenset()
        if plan.batch.items:
            return plan.batch
        if self._wanted != self._assigned:
            self._copy.update(plan.batch.offsets)
        return None

    # -- fetching ----------------------------------------------------------------------------------------------------

    async def _assign_wanted(self) -> None:
        if self._wanted == self._assigned:
            return
        self._fetched.clear()
        self._assigned = self._wanted
        if not self._wanted:
            self._consumer.unsubscribe()
            return
        self._consumer.assign(sorted(self._wanted))
        for partition in self._wanted:
            self._consumer.seek(partition, self._topics.known(partition).offsets[partition.partition])
        self._answered = {}

    async def _fetch(self) -> None:
        if not self._assigned:
            await asyncio.sleep(TICK_SECONDS / 4)
            return
        await self._fetch_some()

    async def _fetch_some(self) -> None:
        try:
            with translated("fetching"):
                try:
                    fetched = await self._consumer.getmany(
                        timeout_ms=int(TICK_SECONDS * 1000), max_records=self._settings.batch_size
                    )
                except kafka.OffsetOutOfRangeError as error:
                    await self._restart_out_of_range(error)
                    return
        finally:
            self._note_answers()
        for records in fetched.values():
            self._fetched.extend(records)

    async def _restart_out_of_range(self, error: kafka.OffsetOutOfRangeError) -> None:
        """The broker no longer has the message to go on with, or never had it: go on with the first it has.

        Messages already stored are recognised by their identity.
        """
        positions: Mapping[TopicPartition, int] = error.args[0]
        begins = await self._consumer.beginning_offsets(list(positions))
        for partition, offset in positions.items():
            begin = begins[partition]
            reason = f"{begin - offset} messages were deleted unread" if begin > offset else "the log was cut short"
            self._log.warning(
                "kafka.out_of_range: %s/%s at offset %s: %s; going on at offset %s",
                partition.topic, partition.partition, offset, reason, begin,
            )  # fmt: skip
            known = self._topics.known(partition)
            known.offsets[partition.partition] = begin
            known.unsaved = True
            self._consumer.seek(partition, begin)

    async def _build_batch(self) -> Batch:
        """Events of what was fetched, in order within each partition, and the positions after them."""
        events: list[TriggerEvent | PositionUpdate] = []
        offsets: dict[TopicPartition, int] = {}
        size = sliced = 0
        while self._fetched and len(events) < self._settings.batch_size and size < MAX_BATCH_BYTES:
            record = self._fetched.popleft()
            partition = TopicPartition(record.topic, record.partition)
            events.append(event_of(record, source=self._topics.known(partition).source))
            offsets[partition] = record.offset + 1
            size += len(record.value or b"") + len(record.key or b"")
            if size - sliced > DECODE_SLICE_BYTES:
                sliced = size
                await asyncio.sleep(0)
        return self._moved(events, offsets)

    async def _skipped_ahead(self) -> Batch | None:
        """Offsets without messages for us (transaction markers, aborted or compacted messages) are passed as well, so
        that a drained topic shows no lag."""
        offsets = {}
        for partition in self._assigned:
            ahead = await self._consumer.position(partition)
            if ahead > self._topics.known(partition).offsets[partition.partition]:
                offsets[partition] = ahead
        return self._moved([], offsets) if offsets else None

    def _moved(self, items: list[TriggerEvent | PositionUpdate], offsets: dict[TopicPartition, int]) -> Batch:
        lanes: dict[str, dict[str, Any]] = {}
        for partition, offset in offsets.items():
            known = self._topics.known(partition)
            known.offsets[partition.partition] = offset
            lanes.setdefault(known.source, {})[str(partition.partition)] = offset
        updates = [PositionUpdate(source=source, lanes=moved) for source, moved in lanes.items()]
        return Batch(items=[*items, *updates], offsets=offsets)

    # -- liveness ----------------------------------------------------------------------------------------------------

    def _resume_clocks(self) -> None:
        """While the trigger is suspended nothing is fetched: silence counts from now."""
        now = time.monotonic()
        self._answered = {partition: (stamp, now) for partition, (stamp, _) in self._answered.items()}

    def _note_answers(self) -> None:
        now = time.monotonic()
        for partition in self._assigned:
            stamp = self._consumer.last_poll_timestamp(partition)
            known = self._answered.get(partition)
            if known is None or known[0] != stamp:
                self._answered[partition] = (stamp, now)

    def _check_answers(self) -> None:
        limit = self._settings.request_timeout + STALL_MARGIN_SECONDS
        now = time.monotonic()
        silent = [partition for partition, (_, since) in self._answered.items() if now - since > limit]
        if silent:
            names = ", ".join(f"{partition.topic}/{partition.partition}" for partition in sorted(silent))
            raise SourceUnavailable(f"no answer for {limit:.0f} s from {names}")
