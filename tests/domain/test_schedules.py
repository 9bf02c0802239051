from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.schedules import PRESETS, Due, ScheduleRefused, check_schedule, next_due
from app.domain.specs import ScheduleKind, ScheduleSpec

NOW = datetime(2026, 3, 28, 12, 30, tzinfo=UTC)


def cron(text: str, timezone: str = "UTC") -> ScheduleSpec:
    return ScheduleSpec(kind=ScheduleKind.CRON, cron=text, timezone=timezone)


def every(seconds: float) -> ScheduleSpec:
    return ScheduleSpec(kind=ScheduleKind.DELTA, delta=seconds)


def at(due: Due | None) -> datetime:
    assert due is not None
    assert due.run_at == due.logical_date
    return due.run_at


def test_cron_gives_the_next_moment_and_passes_over_missed_ones() -> None:
    assert at(next_due(cron("0 * * * *"), now=NOW)) == datetime(2026, 3, 28, 13, tzinfo=UTC)
    missed = NOW - timedelta(days=9)
    assert at(next_due(cron("0 * * * *"), now=NOW, last=missed, start=missed)) == datetime(2026, 3, 28, 13, tzinfo=UTC)


def test_with_catchup_every_moment_gets_its_run() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)

    assert at(next_due(cron("@daily"), now=NOW, start=start, catchup=True)) == start
    following = next_due(cron("@daily"), now=NOW, start=start, last=start, catchup=True)
    assert at(following) == start + timedelta(days=1)


def test_no_run_before_start_or_after_end() -> None:
    later = NOW + timedelta(days=3)

    assert at(next_due(cron("@daily"), now=NOW, start=later)) == datetime(2026, 4, 1, tzinfo=UTC)
    assert next_due(cron("@daily"), now=NOW, end=NOW + timedelta(hours=1)) is None


def test_the_hour_skipped_in_spring_runs_after_it_and_the_repeated_one_once() -> None:
    nightly = cron("30 2 * * *", "Europe/Berlin")

    assert at(next_due(nightly, now=datetime(2026, 3, 28, 23, tzinfo=UTC))) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    first = at(next_due(nightly, now=datetime(2026, 10, 24, 23, tzinfo=UTC)))
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert at(next_due(nightly, now=first, last=first)) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", [*PRESETS, "*/5 * * * *", "0 0 L * *", "15 10 * * MON-FRI"])
def test_valid_texts(text: str) -> None:
    check_schedule(cron(text))


@pytest.mark.parametrize("text", ["", "61 * * * *", "* * *", "@fortnightly", "0 0 30 2 *", "0 0 30 FEB MON#7"])
def test_invalid_texts_are_refused_and_named(text: str) -> None:
    with pytest.raises(ScheduleRefused) as refused:
        check_schedule(cron(text))
    assert repr(text) in str(refused.value)


def test_an_unknown_time_zone_and_an_interval_of_nothing_are_refused() -> None:
    with pytest.raises(ScheduleRefused, match="Mars/Olympus"):
        check_schedule(cron("@daily", "Mars/Olympus"))
    with pytest.raises(ScheduleRefused, match="positive"):
        next_due(every(0), now=NOW)


def test_intervals_count_from_the_last_run() -> None:
    assert at(next_due(every(60), now=NOW)) == NOW + timedelta(minutes=1)
    assert at(next_due(every(60), now=NOW, last=NOW - timedelta(seconds=10))) == NOW + timedelta(seconds=50)
    assert at(next_due(every(60), now=NOW, last=NOW - timedelta(seconds=130))) == NOW + timedelta(seconds=50)
    assert at(next_due(every(60), now=NOW, start=NOW + timedelta(hours=1))) == NOW + timedelta(hours=1)


def test_once_and_continuous() -> None:
    once = ScheduleSpec(kind=ScheduleKind.ONCE)

    assert at(next_due(once, now=NOW)) == NOW
    assert at(next_due(once, now=NOW, start=NOW - timedelta(days=1))) == NOW - timedelta(days=1)
    assert next_due(once, now=NOW, last=NOW) is None
    assert at(next_due(ScheduleSpec(kind=ScheduleKind.CONTINUOUS), now=NOW, last=NOW - timedelta(days=1))) == NOW


def test_schedules_without_a_clock_are_never_due() -> None:
    assert next_due(ScheduleSpec(), now=NOW) is None
    assert next_due(ScheduleSpec(kind=ScheduleKind.ASSETS), now=NOW) is None


moments = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
schedules = st.one_of(
    st.builds(
        cron,
        st.sampled_from([*PRESETS, "*/7 3-5 * * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]),
    ),
    st.builds(every, st.floats(0.5, 1e6)),
)


@given(schedules, moments, st.none() | moments, st.booleans())
def test_the_next_run_is_always_after_the_last(
    schedule: ScheduleSpec, now: datetime, start: datetime | None, catchup: bool
) -> None:
    last: datetime | None = None
    for _ in range(4):
        due = at(next_due(schedule, now=now, last=last, start=start, catchup=catchup))
        assert last is None or due > last
        assert start is None or due >= start
        assert catchup or due >= now
        last = due
