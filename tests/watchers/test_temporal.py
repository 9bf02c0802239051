from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from watchers import temporal
from watchers.describe import build_trigger, describe_trigger
from watchers.errors import WatcherDeclarationError
from watchers.temporal import DateTimeTrigger, TimeDeltaTrigger
from watchers.testing import driving
from watchers.triggers import BaseEventTrigger, TaskSuccessEvent


def test_a_moment_without_zone_is_refused() -> None:
    with pytest.raises(WatcherDeclarationError, match="no time zone"):
        DateTimeTrigger(datetime(2026, 1, 1))  # noqa: DTZ001
    for wrong in ("2026-01-01", 3, None):
        with pytest.raises(WatcherDeclarationError, match="must be"):
            DateTimeTrigger(wrong)  # type: ignore[arg-type]
        with pytest.raises(WatcherDeclarationError, match="must be"):
            TimeDeltaTrigger(wrong)  # type: ignore[arg-type]
    with pytest.raises(WatcherDeclarationError, match="calendar"):
        TimeDeltaTrigger(timedelta.max)
    with pytest.raises(WatcherDeclarationError, match="calendar"):
        DateTimeTrigger(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))))


def test_neither_drives_an_asset() -> None:
    assert not issubclass(DateTimeTrigger, BaseEventTrigger)


async def test_it_fires_at_its_moment_and_not_before() -> None:
    moment = datetime.now(UTC) + timedelta(milliseconds=300)
    async with driving(DateTimeTrigger(moment)) as recording:
        (event,) = await recording.until(1)
        assert datetime.now(UTC) >= moment
    assert event.payload == moment


async def test_a_moment_gone_by_fires_at_once() -> None:
    async with driving(TimeDeltaTrigger(timedelta(days=-1), end_from_trigger=True)) as recording:
        (event,) = await recording.until(1)
    assert isinstance(event, TaskSuccessEvent)


def test_a_delta_counts_from_when_it_was_made() -> None:
    trigger = TimeDeltaTrigger(timedelta(hours=1))
    description = describe_trigger(trigger)
    again = build_trigger(description.classpath, description.kwargs_text)
    assert isinstance(again, DateTimeTrigger)
    assert again.moment == trigger.moment


async def test_a_clock_that_is_set_forward_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal, "_LONGEST_SLEEP", 0.05)
    ahead = 0.0
    real = time.time

    def now() -> float:
        return real() + ahead

    monkeypatch.setattr(temporal.time, "time", now)  # type: ignore[attr-defined]
    async with driving(DateTimeTrigger(datetime.now(UTC) + timedelta(days=1))) as recording:
        with pytest.raises(TimeoutError):
            await recording.until(1, within=0.2)
        ahead = 2 * 86400.0
        await recording.until(1)


async def test_it_can_be_stopped_while_it_waits() -> None:
    closed: list[Any] = []

    class Closing(DateTimeTrigger):
        async def cleanup(self) -> None:
            closed.append(True)

    async with driving(Closing(datetime.now(UTC) + timedelta(days=1))):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert closed == [True]
