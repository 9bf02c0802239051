"""Waiting for an instant, in a task that defers itself.

Both are plain triggers: attached to an asset, one that waits for a moment gone by would fire again and again, so an
``AssetWatcher`` refuses them. A DAG that shall start by the clock has a time schedule.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from watchers.errors import WatcherDeclarationError
from watchers.triggers import BaseTrigger, TaskSuccessEvent, TriggerEvent

#: The wall clock is looked at again after this many seconds at most: it may have been set meanwhile.
_LONGEST_SLEEP = 20.0


class DateTimeTrigger(BaseTrigger):
    """Fires once ``moment`` is reached, at once if it has gone by; the payload is the moment.

    With ``end_from_trigger`` the waiting task ends as succeeded, without starting a worker again.

    Raises :class:`WatcherDeclarationError` if ``moment`` is no datetime or has no time zone.
    """

    public_kwargs = frozenset({"moment"})

    def __init__(self, moment: datetime, *, end_from_trigger: bool = False) -> None:
        if not isinstance(moment, datetime):
            raise WatcherDeclarationError(f"moment must be a datetime, not {type(moment).__name__}")
        if moment.utcoffset() is None:
            raise WatcherDeclarationError(
                f"moment {moment.isoformat()} has no time zone, so it names no instant; give it one "
                "(datetime(…, tzinfo=UTC), for example)"
            )
        self.moment = _in_utc(moment)
        self.end_from_trigger = end_from_trigger

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"moment": self.moment, "end_from_trigger": self.end_from_trigger}
        return f"{DateTimeTrigger.__module__}.{DateTimeTrigger.__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        moment = self.moment.timestamp()
        while (remaining := moment - time.time()) > 0:  # noqa: ASYNC110 — the clock notifies nobody
            await asyncio.sleep(min(remaining, _LONGEST_SLEEP))
        if self.end_from_trigger:
            yield TaskSuccessEvent()
        else:
            yield TriggerEvent(self.moment)


class TimeDeltaTrigger(DateTimeTrigger):
    """Fires ``delta`` after it was made, however often it is restarted; serialises as the moment that gives.

    Raises :class:`WatcherDeclarationError` if ``delta`` is no timedelta or leads beyond the calendar.
    """

    def __init__(self, delta: timedelta, *, end_from_trigger: bool = False) -> None:
        if not isinstance(delta, timedelta):
            raise WatcherDeclarationError(f"delta must be a timedelta, not {type(delta).__name__}")
        try:
            moment = datetime.now(UTC) + delta
        except OverflowError:
            raise WatcherDeclarationError(f"delta {delta} leads beyond the calendar") from None
        super().__init__(moment, end_from_trigger=end_from_trigger)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise WatcherDeclarationError(f"moment {moment.isoformat()} is beyond the calendar in UTC") from None
