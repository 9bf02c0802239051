"""The consumer group's copy of the stored positions, for lag tools.

It runs beside the reading and never holds it up; it carries only what is stored. A failure is a warning, and the newest
offsets are tried again. Offsets of a group without members expire, and a fenced former owner may write old ones last:
so all of them are written anew now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

from aiokafka import TopicPartition

from providers.kafka.cluster import Cluster
from watchers.errors import SourceError

RETRY_SECONDS = 5.0
REWRITE_SECONDS = 300.0
WARN_SECONDS = 60.0
FLUSH_SECONDS = 1.0


class OffsetCopy:
    """Commits the newest offsets given to :meth:`update`, one commit at a time."""

    def __init__(
        self, cluster: Cluster, *, group_id: str, log: logging.Logger | logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._log = log
        self._all: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._next_warning = 0.0
        self._failed = False
        self._task = asyncio.create_task(self._run(), name="kafka offset copy")

    def update(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These positions are stored: write them when next possible."""
        self._all |= offsets
        self._pending |= offsets
        if self._pending:
            self._idle.clear()
            self._wake.set()

    async def close(self, *, flush: bool) -> None:
        """End; with ``flush``, first wait up to a second for what is pending."""
        if flush and not self._failed and not self._task.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._idle.wait()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REWRITE_SECONDS):
                    await self._wake.wait()
            offsets = dict(self._pending if self._wake.is_set() else self._all)
            self._wake.clear()
            if not offsets:
                continue
            try:
                await self._cluster.commit(self.group_id, offsets)
            except SourceError as error:
                self._warn(error)
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except Exception:  # noqa: BLE001  # logged; what it may be is not known
                # A fault of ours or of the client's: the copy must never end the reading.
                self._log.exception("kafka.commit: the copy of the offsets failed; trying again")
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            else:
                self._written(offsets)

    def _written(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._pending = {
            partition: offset for partition, offset in self._pending.items() if offsets.get(partition) != offset
        }
        if not self._pending:
            self._idle.set()
        if self._failed:
            self._failed = False
            self._next_warning = 0.0
            self._log.info("kafka.commit: offsets of group %s are written again", self.group_id)

    def _warn(self, error: SourceError) -> None:
        self._failed = True
        now = time.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + WARN_SECONDS
            self._log.warning("kafka.commit: offsets stay uncommitted for now, events are not affected: %s", error)
