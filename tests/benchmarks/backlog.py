"""A rush of events and how fast their runs are worked off: single-task runs ended a second."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from tests.benchmarks.consumption import per_message, processor_seconds
from tests.benchmarks.figures import Rate, Section
from tests.benchmarks.latency import LIMIT, Progress, deploy, pipeline
from tests.benchmarks.records import Records
from tests.benchmarks.sources import Sender, rest
from tests.waiting import eventually

CALLERS = 25
PARALLELISM = 16


async def measure(*, events: int, progress: Progress) -> Section:
    """Post ``events`` events as fast as 25 callers can and wait until each has had its run."""
    title = f"Backlog of {events:,} events, {PARALLELISM} tasks at once"
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(rest())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        folder.chmod(0o711)
        deployment = stack.enter_context(
            deploy(folder, pipeline(source), source, TIDEGATE_PARALLELISM=str(PARALLELISM))
        )
        send = await stack.enter_async_context(source.sending(deployment))
        records = await stack.enter_async_context(Records.of(deployment))
        await eventually(records.dag_is_ready, LIMIT, what="the DAG is stored")
        await _post(send, count=1, from_number=0)
        await _ended(records, 1)

        before, start = processor_seconds(deployment), time.time()
        await _post(send, count=events, from_number=1)
        posted = time.time()
        async for done in _until_ended(records, 1 + events):
            progress(title, done - 1, events)
        used = per_message(before, processor_seconds(deployment), messages=events)
        journeys = [way for way in await records.journeys() if way.number > 0]
    assert len(journeys) == events, f"{len(journeys)} runs for {events} events"
    last = max(way.ended for way in journeys)
    return Section(
        title=title,
        rows=(
            Rate(name=f"events posted by {CALLERS} callers", per_second=events / (posted - start)),
            Rate(name="runs ended, from the first post to the last end", per_second=events / (last - start)),
        ),
        notes=(used,),
    )


async def _post(send: Sender, *, count: int, from_number: int) -> None:
    numbers = iter(range(from_number, from_number + count))

    async def caller() -> None:
        for number in numbers:
            await send({"n": number, "sent": time.time_ns()})

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def _ended(records: Records, count: int) -> None:
    async for _ in _until_ended(records, count):
        pass


async def _until_ended(records: Records, count: int) -> AsyncIterator[int]:
    while (done := await records.ended()) < count:
        yield done
        await asyncio.sleep(0.2)
