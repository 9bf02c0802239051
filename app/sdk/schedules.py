"""What ``schedule=`` may be, and what it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from app.domain.conditions import clauses, flatten
from app.domain.schedules import PRESETS, check_schedule
from app.domain.specs import BatchSpec, ScheduleKind, ScheduleSpec
from app.sdk.assets import Asset, AssetAll, AssetAny, AssetSchedule, Batch, Condition, as_condition

_FORMS = (
    "None, '@once', '@continuous', cron text or a preset such as '@daily', a timedelta, an Asset, a condition of "
    "assets, a list of assets, or an AssetSchedule"
)


def schedule_spec(schedule: Any, *, start: datetime | None, max_active_runs: int | None) -> ScheduleSpec:
    """The plain value of a schedule. Raises :class:`ValueError` or :class:`TypeError` saying what may be written."""
    if schedule is None:
        return ScheduleSpec(summary="never by itself")
    if isinstance(schedule, str):
        return _text_schedule(schedule, start=start, max_active_runs=max_active_runs)
    if isinstance(schedule, timedelta):
        spec = ScheduleSpec(kind=ScheduleKind.DELTA, delta=schedule.total_seconds(), summary=f"every {schedule}")
        check_schedule(spec)
        return spec
    return _asset_schedule(schedule)


def schedule_assets(schedule: Any) -> tuple[Asset, ...]:
    """The assets that a schedule names."""
    if schedule is None or isinstance(schedule, (str, timedelta)):
        return ()
    condition = schedule.condition if isinstance(schedule, AssetSchedule) else schedule
    return as_condition(condition).assets()


def _text_schedule(text: str, *, start: datetime | None, max_active_runs: int | None) -> ScheduleSpec:
    word = text.strip().lower()
    if word in {"@once", "@continuous"}:
        if word == "@continuous" and max_active_runs != 1:
            raise ValueError("schedule='@continuous' needs max_active_runs=1: one run follows the other")
        return ScheduleSpec(kind=ScheduleKind(word[1:]), summary=word)
    if word.startswith("@") and word not in PRESETS:
        raise ValueError(f"schedule {text!r} is no preset; known: @once, @continuous, {', '.join(sorted(PRESETS))}")
    zone = getattr(start.tzinfo, "key", None) if start is not None else None
    spec = ScheduleSpec(
        kind=ScheduleKind.CRON, cron=PRESETS.get(word, text.strip()), timezone=zone or "UTC", summary=text.strip()
    )
    check_schedule(spec)
    return spec


def _asset_schedule(schedule: Any) -> ScheduleSpec:
    if not isinstance(schedule, (AssetSchedule, Condition)) and (
        isinstance(schedule, (bytes, Mapping)) or not isinstance(schedule, Iterable)
    ):
        raise TypeError(f"schedule={schedule!r} is not understood; it may be {_FORMS}")
    declared = schedule if isinstance(schedule, AssetSchedule) else AssetSchedule(as_condition(schedule))
    condition = as_condition(declared.condition)
    flat = flatten(condition.spec())
    clauses(flat)  # refuses what the planner could not work with
    return ScheduleSpec(
        kind=ScheduleKind.ASSETS,
        condition=flat,
        batch=_batch_spec(declared.batch),
        summary=_summary(condition, outer=True),
    )


def _batch_spec(batch: Batch | None) -> BatchSpec | None:
    if batch is None:
        return None
    return BatchSpec(
        max_events=batch.max_events, max_wait=None if batch.max_wait is None else batch.max_wait.total_seconds()
    )


def _summary(condition: Condition, *, outer: bool) -> str:
    if isinstance(condition, (AssetAny, AssetAll)):
        word = " | " if isinstance(condition, AssetAny) else " & "
        text = word.join(_summary(member, outer=False) for member in condition.objects)
        return text if outer or len(condition.objects) == 1 else f"({text})"
    return condition.assets()[0].name
