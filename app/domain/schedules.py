"""Time schedules: the next moment at which a DAG makes a run by the clock.

Cron texts follow Debian's cron (through cronsim), in the schedule's time zone: a job at a fixed time that falls into
the hour skipped in spring runs right after it, one in the hour repeated in autumn runs once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from app.domain.specs import ScheduleKind, ScheduleSpec

PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class ScheduleRefused(ValueError):
    """A time schedule is invalid. The loader adds file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The next run of a time schedule: when it is made, and the logical date it gets (in UTC)."""

    run_at: datetime
    logical_date: datetime


def check_schedule(schedule: ScheduleSpec) -> None:
    """Refuse what can never be planned.

    Raises:
        ScheduleRefused: The cron text, time zone or interval is invalid, or the cron text names no moment at all.
    """
    match schedule.kind:
        case ScheduleKind.CRON:
            _next_cron(schedule, datetime(2024, 1, 1, tzinfo=UTC))
        case ScheduleKind.DELTA if not schedule.delta or schedule.delta <= 0:
            raise ScheduleRefused(f"the schedule's interval must be positive, not {schedule.delta} s")


def next_due(
    schedule: ScheduleSpec,
    *,
    now: datetime,
    last: datetime | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    catchup: bool = False,
) -> Due | None:
    """The next run of a time schedule, or None if there is none.

    ``last`` is the logical date of the last scheduled run. Without ``catchup`` moments before ``now`` are passed over;
    with it (and a ``start``) every moment since ``start`` or ``last`` gets its run. Runs are never before ``start`` nor
    after ``end``.

    Raises:
        ScheduleRefused: As :func:`check_schedule`.
    """
    moment = _next_moment(schedule, now=now, last=last, start=start, catchup=catchup)
    if moment is None or (end is not None and moment > end):
        return None
    moment = moment.astimezone(UTC)
    return Due(run_at=moment, logical_date=moment)


def _next_moment(
    schedule: ScheduleSpec, *, now: datetime, last: datetime | None, start: datetime | None, catchup: bool
) -> datetime | None:
    match schedule.kind:
        case ScheduleKind.ONCE:
            return None if last is not None else (start or now)
        case ScheduleKind.CONTINUOUS:
            return max(now, start) if start is not None else now
        case ScheduleKind.CRON:
            return _next_cron(schedule, _after(now=now, last=last, start=start, catchup=catchup))
        case ScheduleKind.DELTA:
            check_schedule(schedule)
            return _next_delta(schedule, now=now, last=last, start=start, catchup=catchup)
        case ScheduleKind.NONE | ScheduleKind.ASSETS:
            return None


def _after(*, now: datetime, last: datetime | None, start: datetime | None, catchup: bool) -> datetime:
    """The moment after which (exclusive) to look. ``start`` itself counts, hence the microsecond."""
    first = start - timedelta(microseconds=1) if start is not None else None
    if catchup:
        known = [moment for moment in (last, first) if moment is not None]
        return max(known) if known else now
    return max(moment for moment in (now, last, first) if moment is not None)


def _next_cron(schedule: ScheduleSpec, after: datetime) -> datetime:
    text = schedule.cron or ""
    after = after.astimezone(_zone(schedule.timezone))
    try:
        return next(CronSim(PRESETS.get(text.strip().lower(), text), after))
    except CronSimError as error:
        raise ScheduleRefused(f"cron text {text!r} is invalid: {error}") from error
    except StopIteration:
        raise ScheduleRefused(f"cron text {text!r} names no moment within the next 50 years") from None


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleRefused(f"time zone {name!r} is unknown") from error


def _next_delta(
    schedule: ScheduleSpec, *, now: datetime, last: datetime | None, start: datetime | None, catchup: bool
) -> datetime:
    step = timedelta(seconds=schedule.delta or 0.0)
    anchor = last if last is not None else start
    if anchor is None:
        return now + step
    following = anchor + step if last is not None else anchor
    if following < now and not catchup:
        following += -((following - now) // step) * step
    return max(following, start) if start is not None else following
