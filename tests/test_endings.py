"""Ends that come, whatever stands in their way."""

from __future__ import annotations

import asyncio
import time

import pytest

from app.processes import endings
from app.processes.endings import GAVE_UP, end_at_latest, end_tasks, must_end
from tests.waiting import eventually_sync


async def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "_ASK_AGAIN", 0.05)
    lost: list[int] = []

    async def deaf() -> None:
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if len(lost) == 2:
                    raise
                lost.append(1)

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await end_tasks([task])
    assert task.cancelled()
    assert len(lost) == 2


def test_a_process_that_hangs_after_its_lease_ends_itself() -> None:
    statuses: list[int] = []
    with must_end("a process", job_id=7, within=0.05, give_up=statuses.append):
        eventually_sync(lambda: statuses)  # A loop that does not turn either.
    assert statuses == [GAVE_UP]


def test_a_process_that_cleans_up_in_time_goes_on() -> None:
    statuses: list[int] = []
    with must_end("a process", job_id=7, within=0.2, give_up=statuses.append):
        pass
    time.sleep(0.4)
    assert statuses == []


def test_a_process_that_was_asked_to_end_ends_itself() -> None:
    statuses: list[int] = []
    end_at_latest("a process", within=0.05, give_up=statuses.append)
    eventually_sync(lambda: statuses)
    assert statuses == [GAVE_UP]
