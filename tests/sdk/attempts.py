"""Running single attempts without an executor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.domain.orders import AttemptOrder, EventValue, Outcome, RunValue
from app.domain.specs import AssetKey
from app.sdk import DAG, Asset
from app.sdk.execution import execute
from app.sdk.xcom_values import decode_xcom, encode_xcom

NOON = "2026-03-02T12:00:00+00:00"


class Gateway:
    """Answers from memory, and remembers what was asked."""

    def __init__(self, xcoms: dict[tuple[str, str], Any] | None = None, events: Iterable[EventValue] = ()) -> None:
        self.xcoms = {key: encode_xcom(value, name="value") for key, value in (xcoms or {}).items()}
        self.events = list(events)
        self.asked: list[dict[str, Any]] = []

    def xcom_pull(self, *, task_ids: list[str], key: str) -> list[tuple[str, str]]:
        self.asked.append({"task_ids": task_ids, "key": key})
        return [(task_id, self.xcoms[task_id, key]) for task_id in task_ids if (task_id, key) in self.xcoms]

    def inlet_events(
        self,
        asset: AssetKey,
        *,
        after: str | None = None,
        before: str | None = None,
        ascending: bool = True,
        limit: int | None = None,
    ) -> list[EventValue]:
        self.asked.append({"asset": asset, "after": after, "before": before, "ascending": ascending, "limit": limit})
        return self.events[:limit]


def event(asset: Asset, extra: dict[str, Any], *, number: int = 1) -> EventValue:
    return EventValue(id=number, asset=asset.key, extra=extra, timestamp=NOON)


def asset_run(*events: EventValue, **values: Any) -> RunValue:
    return RunValue(
        dag_id="d",
        run_id="asset_triggered__2026-03-02T12:00:00+00:00_abcd1234",
        run_type="asset_triggered",
        run_after=NOON,
        triggering_asset_events=events,
        **values,
    )


def time_run(**values: Any) -> RunValue:
    return RunValue(
        dag_id="d",
        run_id="scheduled__2026-03-02T12:00:00+00:00",
        run_type="scheduled",
        run_after=NOON,
        logical_date=NOON,
        data_interval_start="2026-03-01T12:00:00+00:00",
        data_interval_end=NOON,
        **values,
    )


def attempt(
    dag: DAG,
    task_id: str | None = None,
    *,
    run: RunValue | None = None,
    gateway: Gateway | None = None,
    try_number: int = 1,
    execution_timeout: float | None = None,
) -> Outcome:
    task = dag.get_task(task_id) if task_id else dag.tasks[-1]
    order = AttemptOrder(
        task_instance_id=1,
        epoch=1,
        task_id=task.task_id,
        map_index=-1,
        try_number=try_number,
        max_tries=task.retries,
        run=run or asset_run(),
        bundle_digest="",
        entry="",
        execution_timeout=execution_timeout,
    )
    return execute(dag, order, gateway or Gateway())


def values(outcome: Outcome) -> dict[str, Any]:
    return {key: decode_xcom(text) for key, text in outcome.xcoms.items()}
