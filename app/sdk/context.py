"""What a running task can ask for by name, in its function's parameters and in templates."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from app.domain.orders import AttemptOrder, RunValue
from app.sdk.errors import MissingInContext, OutsideOfTask
from app.sdk.events import AssetEvent, InletEventsByAsset, OutletEvents, TriggeringAssetEvents
from app.sdk.settings_access import ConnectionAccess, VariableAccess
from app.sdk.task_instance import TaskInstance

if TYPE_CHECKING:
    from app.sdk.dag import DAG
    from app.sdk.gateway import TaskGateway
    from app.sdk.operators.base import BaseOperator

#: Variables that only runs with a logical date have.
DATE_VARIABLES = (
    "data_interval_end", "data_interval_start", "ds", "ds_nodash", "logical_date", "ts", "ts_nodash",
    "ts_nodash_with_tz",
)  # fmt: skip
#: Variables of the field's past that no run has, and what to use.
_GONE = {
    "execution_date": "logical_date",
    "next_ds": "data_interval_end",
    "next_execution_date": "data_interval_end",
    "prev_ds": "data_interval_start",
    "prev_execution_date": "data_interval_start",
    "tomorrow_ds": "macros.ds_add(ds, 1)",
    "yesterday_ds": "macros.ds_add(ds, -1)",
}

_current: ContextVar[Context | None] = ContextVar("tidegate_context", default=None)


class Context(dict[str, Any]):
    """The variables of a running task. Asking for one that this run does not have says why and names an alternative."""

    def __missing__(self, name: str) -> Any:
        raise MissingInContext(self.explains(name) or f"{name!r} is no variable of a task; known: {self.known()}")

    def explains(self, name: str) -> str | None:
        """Why this run lacks the variable ``name``, if it is one that others have."""
        if name in DATE_VARIABLES and name not in self:
            run: DagRun = self["dag_run"]
            return (
                f"{name!r} is not there: run {run.run_id!r} ({run.run_type}) has no logical date. Use "
                "dag_run.run_after for when it was due, or the timestamps of triggering_asset_events for what caused it"
            )
        if name in _GONE:
            return f"{name!r} is not there; use {_GONE[name]}"
        return None

    def known(self) -> str:
        """The names of all variables."""
        return ", ".join(sorted(self))

    def extended(self, **more: Any) -> Context:
        """A copy with more variables."""
        return Context({**self, **more})


class DagRun:
    """The run a task belongs to."""

    def __init__(self, value: RunValue) -> None:
        self.dag_id = value.dag_id
        self.run_id = value.run_id
        self.run_type = value.run_type
        self.conf = value.conf
        self.logical_date = _moment(value.logical_date)
        self.data_interval_start = _moment(value.data_interval_start)
        self.data_interval_end = _moment(value.data_interval_end)
        self.run_after = _moment(value.run_after)
        self.start_date = _moment(value.start_date)
        self.consumed_asset_events = [AssetEvent.of_value(event) for event in value.triggering_asset_events]

    @property
    def external_trigger(self) -> bool:
        """Whether somebody asked for this run."""
        return self.run_type == "manual"

    def __repr__(self) -> str:
        return f"<DagRun: {self.dag_id} {self.run_id}>"


def build_context(task: BaseOperator, order: AttemptOrder, gateway: TaskGateway, *, dag: DAG) -> Context:
    """The context of one attempt."""
    run = DagRun(order.run)
    instance = TaskInstance(task=task, order=order, run=run, gateway=gateway)
    params = {**dag.params, **task.params}
    params.update(run.conf)
    context = Context(
        conn=ConnectionAccess(),
        dag=dag,
        dag_run=run,
        idempotency_key=instance.idempotency_key,
        inlet_events=InletEventsByAsset(task.inlets, gateway),
        inlets=task.inlets,
        macros=MACROS,
        outlet_events=OutletEvents(task.outlets),
        outlets=task.outlets,
        params=params,
        run_id=run.run_id,
        task=task,
        task_instance=instance,
        task_instance_key_str=f"{dag.dag_id}__{task.task_id}__{run.run_id}",
        ti=instance,
        triggering_asset_events=TriggeringAssetEvents(run.consumed_asset_events),
        try_number=order.try_number,
        var=SimpleNamespace(value=VariableAccess(as_json=False), json=VariableAccess(as_json=True)),
    )
    context.update(_dates(run))
    instance.context = context
    return context


def get_current_context() -> Context:
    """The context of the task that is running. Raises :class:`OutsideOfTask` if none is."""
    context = _current.get()
    if context is None:
        raise OutsideOfTask("get_current_context() is for code of a running task; a DAG's declaration has no context")
    return context


@contextmanager
def current(context: Context) -> Iterator[None]:
    """Let ``context`` be the current one in this block."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _dates(run: DagRun) -> dict[str, Any]:
    if run.logical_date is None:
        return {}
    moment = run.logical_date.astimezone(UTC)
    day, stamp = moment.strftime("%Y-%m-%d"), moment.isoformat()
    return {
        "data_interval_end": run.data_interval_end or run.logical_date,
        "data_interval_start": run.data_interval_start or run.logical_date,
        "ds": day,
        "ds_nodash": day.replace("-", ""),
        "logical_date": run.logical_date,
        "ts": stamp,
        "ts_nodash": moment.strftime("%Y%m%dT%H%M%S"),
        "ts_nodash_with_tz": stamp.replace("-", "").replace(":", ""),
    }


def _ds_add(ds: str, days: int) -> str:
    return (datetime.fromisoformat(ds) + timedelta(days=days)).strftime("%Y-%m-%d")


def _ds_format(ds: str, input_format: str, output_format: str) -> str:
    return datetime.strptime(str(ds), input_format).strftime(output_format)  # noqa: DTZ007 - a day has no zone


MACROS = SimpleNamespace(
    datetime=datetime,
    ds_add=_ds_add,
    ds_format=_ds_format,
    random=random.random,
    time=time,
    timedelta=timedelta,
    uuid=uuid,
)

__all__ = ["DATE_VARIABLES", "MACROS", "Context", "DagRun", "build_context", "current", "get_current_context"]
