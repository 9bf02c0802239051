"""From a message to the first line of user code: a whole deployment, one source, an even stream of messages.

Messages are sent at fixed moments whatever became of the ones before (an open loop), so that a stall delays every
message it would delay in production.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.acceptance.deployment import Deployment
from tests.benchmarks.consumption import per_message, processor_seconds
from tests.benchmarks.figures import Section, Spread
from tests.benchmarks.records import Journey, Records
from tests.benchmarks.sources import ASSET, SOURCES, Sender, Source
from tests.waiting import eventually

#: Messages sent before those that count: connections, caches and statement plans are warm then.
WARM_UP = 20
#: How long the runs of the last messages may take, in seconds.
LIMIT = 120.0
DAG_ID = "bench"

Progress = Callable[[str, int, int], None]

_PIPELINE = """
import time

from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger, task

asset = Asset({asset!r}, watchers=[{watchers}])

with DAG({dag_id!r}, schedule=asset, max_active_runs=64):

    @task
    def take(triggering_asset_events=None):
        first_line = time.time_ns()
        (event,) = triggering_asset_events[asset]
        return {{**{found}, "first_line": first_line}}

    take()
"""

_HOPS: tuple[tuple[str, Callable[[Journey], float]], ...] = (
    ("sent → stored", lambda way: way.stored - way.sent),
    ("stored → run made", lambda way: way.made - way.stored),
    ("run made → task claimed", lambda way: way.claimed - way.made),
    ("task claimed → first line", lambda way: way.first_line - way.claimed),
    ("sent → first line", lambda way: way.first_line - way.sent),
)


def pipeline(source: Source) -> str:
    """A pipeline file whose one task notes its first moment and returns it with what the message said."""
    watchers = f"AssetWatcher('bench', {source.watcher})" if source.watcher else ""
    return _PIPELINE.format(asset=ASSET, dag_id=DAG_ID, watchers=watchers, found=_plain(source.found))


def _plain(found: str) -> str:
    return f"{{name: value for name, value in {found}.items() if name in ('n', 'sent')}}"


async def measure(name: str, *, events: int, rate: float, progress: Progress) -> Section:
    """Send ``events`` messages, ``rate`` a second, through a fresh deployment fed by the source ``name``."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(SOURCES[name]())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        folder.chmod(0o711)
        deployment = stack.enter_context(deploy(folder, pipeline(source), source))
        send = await stack.enter_async_context(source.sending(deployment))
        records = await stack.enter_async_context(Records.of(deployment))
        first = await _first_message(source, send, records)
        await _send_evenly(send, count=WARM_UP, rate=rate, from_number=1)
        await _ended(records, 1 + WARM_UP)
        title = f"{source.title}: {events} messages, {rate:g}/s"
        before = processor_seconds(deployment)
        await _send_evenly(
            send, count=events, rate=rate, from_number=1 + WARM_UP, told=lambda sent: progress(title, sent, events)
        )
        await _ended(records, 1 + WARM_UP + events)
        used = per_message(before, processor_seconds(deployment), messages=events)
        journeys = [way for way in await records.journeys() if way.number > WARM_UP]
    assert len(journeys) == events, f"{len(journeys)} runs for {events} messages"
    rows = [Spread.of(hop, [took(way) * 1000 for way in journeys]) for hop, took in _HOPS]
    cold = (first.first_line - first.sent) * 1000
    return Section(title=title, rows=tuple(rows), notes=(f"first message after the start: {cold:.0f} ms", used))


def deploy(folder: Path, text: str, source: Source, **environment: str) -> Deployment:
    """A deployment of one pipeline file, with a database that waits for the disk."""
    dags = folder / "dags"
    dags.mkdir()
    (dags / "bench.py").write_text(text)
    return Deployment(
        folder / "home", dags, environment={"TIDEGATE_POSTGRES_FSYNC": "true", **source.environment, **environment}
    )


async def _first_message(source: Source, send: Sender, records: Records) -> Journey:
    """Send the first message once the DAG is there and its watcher can have started."""
    await eventually(records.dag_is_ready, LIMIT, what="the DAG is stored and its watcher runs")
    await send({"n": 0, "sent": time.time_ns()})
    await _ended(records, 1)
    (way,) = await records.journeys()
    return way


async def _send_evenly(
    send: Sender, *, count: int, rate: float, from_number: int, told: Callable[[int], None] | None = None
) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(start + number / rate - loop.time(), 0))
            group.create_task(send({"n": from_number + number, "sent": time.time_ns()}))
            if told is not None:
                told(number + 1)


async def _ended(records: Records, count: int) -> None:
    async def enough() -> bool:
        return await records.ended() >= count

    await eventually(enough, LIMIT, what=f"{count} runs ended")
