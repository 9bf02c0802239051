"""A steady stream of messages into a source, at random gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from tests.chaos.ledger import Ledger
from tests.chaos.sources import Source


async def end_all(flows: Sequence[Flow], ledger: Ledger, dag_ids: Sequence[str]) -> None:
    """Send no more, and see everything stored: each message one event and one run of the DAG of its flow."""
    for flow in flows:
        flow.pause()
    await ledger.until_all_stored()
    for flow, dag_id in zip(flows, dag_ids, strict=True):
        await ledger.assert_each_event_once(flow.source.kind)
        await ledger.assert_each_run_once(flow.source.kind, dag_id)


class Flow:
    """Sends numbered values while it is not paused; :meth:`send_one` adds one now."""

    def __init__(self, source: Source, ledger: Ledger, chance: Random, *, gap: float = 0.08) -> None:
        self.source = source
        self.ledger = ledger
        self._chance = chance
        self._gap = gap
        self._count = 0
        self._open = asyncio.Event()
        self._open.set()

    @classmethod
    @asynccontextmanager
    async def open(cls, source: Source, ledger: Ledger, chance: Random, *, gap: float = 0.08) -> AsyncIterator[Flow]:
        """Sends as long as the block runs; a message under way is still sent."""
        flow = cls(source, ledger, chance, gap=gap)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(flow._send_for_ever(), name=f"flow-{source.kind}")
            try:
                yield flow
            finally:
                flow._open.clear()
                # Nothing is cut in the middle of a request: it would be unknown whether it was sent.
                await flow._idle()
                sending.cancel()

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def send_one(self) -> str:
        """Send the next value; it."""
        self._count += 1
        value = f"{self.source.kind}-{self._count:05d}"
        self.ledger.note_sent(self.source.kind, value)
        await self._guarded(value)
        return value

    @property
    def sent(self) -> int:
        """How many there were."""
        return self._count

    _sending = 0

    async def _guarded(self, value: str) -> None:
        self._sending += 1
        try:
            await self.source.send([value])
        finally:
            self._sending -= 1

    async def _idle(self) -> None:
        while self._sending:
            await asyncio.sleep(0.005)

    async def _send_for_ever(self) -> None:
        while True:
            await self._open.wait()
            await self.send_one()
            await asyncio.sleep(self._chance.uniform(0.1, 1.9) * self._gap)
