"""The database stands still for longer than leases and connections wait, in the midst of work: everything heals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Client, Deployment

#: Longer than a pool waits for a connection whose statement was cancelled (10 s), after the loss of a lease of 1.5 s.
STALL_SECONDS = 16.0
POSTERS = 4
PIPELINES = """
import asyncio
import time

from app.sdk import DAG, Asset, AssetWatcher
from watchers import BaseEventTrigger, TriggerEvent


class Ticking(BaseEventTrigger):
    def serialize(self):
        return (f"{type(self).__module__}.Ticking", {})

    async def run(self):
        while True:
            await asyncio.sleep(0.5)
            yield TriggerEvent("tick")


class Blocking(BaseEventTrigger):
    def serialize(self):
        return (f"{type(self).__module__}.Blocking", {})

    async def run(self):
        time.sleep(600)
        yield TriggerEvent("never")


class Failing(BaseEventTrigger):
    def serialize(self):
        return (f"{type(self).__module__}.Failing", {})

    async def run(self):
        await asyncio.sleep(0.1)
        raise ValueError("on purpose")
        yield TriggerEvent("never")


for kind in (Ticking, Blocking, Failing):
    name = kind.__name__.lower()
    with DAG(name, schedule=[Asset(name, watchers=[AssetWatcher(name, kind())])]):
        pass
with DAG("posted", schedule=[Asset("posted")]):
    pass
"""


@pytest.mark.timeout(240)
def test_a_long_stall_heals(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "stall.py").write_text(PIPELINES)
    there = deploy(
        pipelines,
        TIDEGATE_HEARTBEAT_INTERVAL="0.5",
        TIDEGATE_BLOCK_WARNING="0.5",
        TIDEGATE_BLOCK_LIMIT="1",
    )
    there.wait_for_dags(["ticking", "blocking", "failing", "posted"])
    there.wait_for(lambda: there.client.triggers()["blocking"]["status"] == "quarantined", "a quarantined trigger")
    there.wait_for(lambda: _ticks(there) > 1, "ticks")
    with _posting(there.client) as (answered, doubtful):
        there.wait_for(lambda: len(answered) > POSTERS, "events")
        with _stalled(there):
            time.sleep(STALL_SECONDS)  # The length of the stall is what is tested.
        before, posted = _ticks(there), len(answered)
        there.wait_for(lambda: _ticks(there) > before + 1, "ticks after the stall")
        there.wait_for(lambda: len(answered) > posted + POSTERS, "events after the stall")
    there.wait_for(there.healthy, "health")
    stored = [event["extra"]["number"] for event in there.client.events("posted")]
    assert len(stored) == len(set(stored))
    assert set(answered) <= set(stored) <= {*answered, *doubtful}
    there.wait_for(lambda: there.client.count_runs("posted") == len(stored), "a run of each event")


def _ticks(there: Deployment) -> int:
    return there.client.count("/api/v2/assets/events", asset_id=there.client.asset_id("ticking"))


@contextmanager
def _posting(client: Client) -> Iterator[tuple[list[int], list[int]]]:
    """Clients that post event after event: the numbers of those that were answered, and of those in doubt."""
    asset = client.asset_id("posted")
    numbers, over = count(), threading.Event()
    answered: list[int] = []
    doubtful: list[int] = []

    def post() -> None:
        while not over.wait(0.5):
            number = next(numbers)
            try:
                client.post("/api/v2/assets/events", {"asset_id": asset, "extra": {"number": number}})
            except (OSError, AssertionError):
                doubtful.append(number)
            else:
                answered.append(number)

    posters = [threading.Thread(target=post) for _ in range(POSTERS)]
    for poster in posters:
        poster.start()
    try:
        yield answered, doubtful
    finally:
        over.set()
        for poster in posters:
            poster.join()


@contextmanager
def _stalled(there: Deployment) -> Iterator[None]:
    """Every process of the database server is stopped."""
    family = psutil.Process(there.pid).children(recursive=True)
    stopped = [process for process in family if process.name() == "postgres"]
    assert stopped
    for process in stopped:
        process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            process.resume()
