from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from app.domain.orders import Failed, Skipped, Succeeded
from app.sdk import (
    DAG,
    Asset,
    BaseOperator,
    BashOperator,
    FailTask,
    Metadata,
    PythonOperator,
    SkipTask,
    get_current_context,
    task,
)
from app.sdk.errors import OutsideOfTask
from tests.sdk.attempts import NOON, Gateway, asset_run, attempt, event, time_run, values

A, B = Asset("a"), Asset("b", uri="s3://bucket/b")


class Colour(Enum):
    RED = 1


def python_dag(function: Any, **options: Any) -> DAG:
    with DAG("d", schedule=A) as dag:
        task(**{"task_id": function.__name__.strip("<>"), **options})(function)()
    return dag


# --------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    "value",
    [
        1,
        "text",
        None,
        [1, {"a": (1, 2)}, {3}],
        datetime(2026, 1, 1, tzinfo=UTC),
        timedelta(seconds=3),
        b"\0\xff",
        Path("/tmp/x"),
        Colour.RED,
        {"nested": {"deep": [None, 1.5, True]}},
    ],
)
def test_the_same_types_come_back(value: Any) -> None:
    outcome = attempt(python_dag(lambda: value))
    assert isinstance(outcome, Succeeded)
    assert values(outcome) == ({} if value is None else {"return_value": value})


def test_dictionaries_keep_their_order() -> None:
    assert list(values(attempt(python_dag(lambda: {"b": 1, "a": 2})))["return_value"]) == ["b", "a"]


def test_what_has_no_encoding_fails_with_its_place() -> None:
    outcome = attempt(python_dag(lambda: {"rows": [1, object()]}))
    assert isinstance(outcome, Failed)
    assert "return_value.rows[1]" in outcome.error


def test_pushes_are_kept_however_it_ends() -> None:
    def push(ti: Any) -> None:
        ti.xcom_push("mine", (1, 2))
        assert ti.xcom_pull(task_ids="push", key="mine") == (1, 2)
        raise RuntimeError("later")

    outcome = attempt(python_dag(push))
    assert isinstance(outcome, Failed)
    assert values(outcome) == {"mine": (1, 2)}


def test_multiple_outputs() -> None:
    outcome = attempt(python_dag(lambda: {"a": 1, "b": [2]}, multiple_outputs=True))
    assert values(outcome) == {"a": 1, "b": [2], "return_value": {"a": 1, "b": [2]}}
    assert isinstance(attempt(python_dag(lambda: 3, multiple_outputs=True)), Failed)


def test_pulls() -> None:
    seen: dict[str, Any] = {}

    def pull(ti: Any) -> None:
        seen["one"] = ti.xcom_pull(task_ids="x")
        seen["many"] = ti.xcom_pull(task_ids=["x", "none", "y"])
        seen["default"] = ti.xcom_pull(task_ids="none", default=7)
        seen["key"] = ti.xcom_pull(task_ids="x", key="k")

    gateway = Gateway({("x", "return_value"): 1, ("y", "return_value"): 2, ("x", "k"): 3})
    assert isinstance(attempt(python_dag(pull), gateway=gateway), Succeeded)
    assert seen == {"one": 1, "many": [1, None, 2], "default": 7, "key": 3}


def test_results_of_other_tasks_reach_arguments() -> None:
    seen: list[Any] = []
    with DAG("d") as dag:

        @task
        def one() -> int:
            return 1

        @task
        def two(value: Any, *, more: Any) -> None:
            seen.append((value, more))

        first = one()
        two([{"x": (first,)}, "{{ run_id }}"], more=first["k"])
    gateway = Gateway({("one", "return_value"): {5}, ("one", "k"): "v"})
    assert isinstance(attempt(dag, gateway=gateway), Succeeded)
    assert seen == [([{"x": ({5},)}, asset_run().run_id], "v")]


# ------------------------------------------------------------------------------------------------ ends


@pytest.mark.parametrize(
    ("error", "end", "text"),
    [
        (SkipTask("not today"), Skipped, "not today"),
        (FailTask("never"), Failed, "FailTask: never"),
        (ValueError("bad"), Failed, "ValueError: bad"),
        (SystemExit(3), Failed, "SystemExit(3)"),
        (KeyboardInterrupt(), Failed, "KeyboardInterrupt"),
        (BaseException("odd"), Failed, "odd"),
    ],
)
def test_ends(error: BaseException, end: type[Any], text: str) -> None:
    def end_it() -> None:
        raise error

    outcome = attempt(python_dag(end_it))
    assert isinstance(outcome, end)
    assert text in (outcome.reason if isinstance(outcome, Skipped) else outcome.error)
    if isinstance(outcome, Failed):
        assert outcome.retry is not isinstance(error, FailTask)


def test_async_functions() -> None:
    async def wait() -> str:
        await asyncio.sleep(0)
        return "done"

    assert values(attempt(python_dag(wait))) == {"return_value": "done"}


def test_callbacks() -> None:
    seen: list[str] = []

    def note(what: str) -> Any:
        def callback(context: Any) -> None:
            seen.append(f"{what} {type(context.get('exception')).__name__}")
            raise RuntimeError("callbacks may fail")

        return callback

    def maybe() -> None:
        if get_current_context()["try_number"] < 3:
            raise ValueError

    dag = python_dag(
        maybe,
        retries=1,
        on_execute_callback=note("execute"),
        on_success_callback=[note("success"), note("again")],
        on_retry_callback=note("retry"),
        on_failure_callback=note("failure"),
    )
    for number in (1, 2, 3):
        attempt(dag, try_number=number)
    assert seen == [
        "execute NoneType", "retry ValueError",
        "execute NoneType", "failure ValueError",
        "execute NoneType", "success NoneType", "again NoneType",
    ]  # fmt: skip


class Blocking(BaseOperator):
    def __init__(self, *, wait: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def execute(self, context: Any) -> None:
        self.wait()

    def on_kill(self) -> None:
        context = get_current_context()
        context["ti"].xcom_push("killed", True)


def wait_long() -> None:
    try:
        threading.Event().wait(30)
    except Exception:
        time.sleep(30)


async def wait_long_async() -> None:
    try:
        await asyncio.sleep(30)
    except Exception:
        await asyncio.sleep(30)


async def block_the_loop() -> None:
    time.sleep(30)  # noqa: ASYNC251 - what a careless author writes


@pytest.mark.parametrize("function", [wait_long, wait_long_async, block_the_loop])
@pytest.mark.timeout(25, method="thread")
def test_execution_timeout(function: Any) -> None:
    outcome = attempt(python_dag(function), execution_timeout=0.2)
    assert isinstance(outcome, Failed)
    assert "execution_timeout of 0.2 s" in outcome.error
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("is_async", [False, True])
def test_sigterm_ends_the_task_and_calls_on_kill(is_async: bool) -> None:
    def end_me() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_long()

    async def end_me_async() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)

    if is_async:
        outcome = attempt(python_dag(end_me_async))
    else:
        with DAG("d") as dag:
            Blocking(task_id="b", wait=end_me)
        outcome = attempt(dag)
        assert values(outcome) == {"killed": True}
    assert isinstance(outcome, Failed)
    assert "SIGTERM" in outcome.error
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# --------------------------------------------------------------------------------------------- context


def test_context_of_an_asset_run() -> None:
    seen: dict[str, Any] = {}

    def look(triggering_asset_events: Any, dag_run: Any, ti: Any, idempotency_key: str, **context: Any) -> None:
        seen.update(context, events=triggering_asset_events, dag_run=dag_run, key=idempotency_key, ti=ti)

    causes = [
        event(A, {"from_trigger": True, "payload": {"n": 1}}),
        event(B, {"from_rest_api": True}, number=2),
        event(A, {"from_trigger": True, "payload": {"n": 2}}, number=3),
    ]
    run = asset_run(*causes, conf={"size": 9, "other": 1})
    with DAG("d", params={"size": 1, "kept": 2}) as dag:
        PythonOperator(task_id="look", python_callable=look)
    for number in (1, 2):
        assert isinstance(attempt(dag, run=run, try_number=number), Succeeded)
        assert seen["key"] == f"d/{run.run_id}/look/-1"
    assert seen["params"] == {"size": 9, "kept": 2, "other": 1}
    assert seen["run_id"] == run.run_id
    events = seen["events"]
    assert [e.payload for e in events[A]] == [{"n": 1}, {"n": 2}]
    assert [e.payload for e in events[B]] == [None]
    assert events[Asset("none")] == []
    assert list(events) == [A, B]
    assert A in events
    assert [e.id for e in seen["dag_run"].consumed_asset_events] == [1, 2, 3]
    assert events[A][0].timestamp == datetime.fromisoformat(NOON)
    with pytest.raises(TypeError, match="the key is an Asset, not str"):
        events["a"]
    for name in ("logical_date", "ds", "ts", "data_interval_start"):
        assert name not in seen
    assert seen["dag_run"].logical_date is None


def test_context_of_a_time_run() -> None:
    def look(ds: str, ts: str, logical_date: Any, data_interval_start: Any, ds_nodash: str) -> list[Any]:
        return [ds, ts, logical_date, data_interval_start, ds_nodash]

    moment = datetime.fromisoformat(NOON)
    assert values(attempt(python_dag(look), run=time_run()))["return_value"] == [
        "2026-03-02", NOON, moment, moment - timedelta(days=1), "20260302",
    ]  # fmt: skip


def test_a_date_that_is_not_there_is_explained() -> None:
    def look(logical_date: Any) -> None: ...

    def ask() -> None:
        get_current_context()["ds"]

    def optional(logical_date: Any = None) -> str:
        return str(logical_date)

    for function, name in ((look, "logical_date"), (ask, "ds")):
        outcome = attempt(python_dag(function))
        assert isinstance(outcome, Failed)
        assert f"'{name}' is not there: run 'asset_triggered__" in outcome.error
        assert "dag_run.run_after" in outcome.error
    assert values(attempt(python_dag(optional))) == {"return_value": "None"}


def test_there_is_no_context_outside() -> None:
    with pytest.raises(OutsideOfTask, match="running task"):
        get_current_context()


def test_inlet_events_ask_when_looked_at() -> None:
    seen: list[Any] = []

    def look(inlet_events: Any) -> None:
        recent = inlet_events[A].after(datetime(2026, 1, 1, tzinfo=UTC)).ascending(False).limit(1)
        seen.extend([recent[0].extra, len(inlet_events[0])])
        with pytest.raises(KeyError, match="is no inlet"):
            inlet_events[B]
        with pytest.raises(ValueError, match="no time zone"):
            inlet_events[A].before(datetime(2026, 1, 1))  # noqa: DTZ001

    gateway = Gateway(events=[event(A, {"n": 1}), event(A, {"n": 2})])
    assert isinstance(attempt(python_dag(look, inlets=[A]), gateway=gateway), Succeeded)
    assert seen == [{"n": 1}, 2]
    assert gateway.asked[0] == {
        "asset": A.key, "after": "2026-01-01T00:00:00+00:00", "before": None, "ascending": False, "limit": 1,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- outlets


def test_outlet_events() -> None:
    def make(outlet_events: Any) -> Iterator[Metadata]:
        outlet_events[A].extra = {"first": 1, "kept": [1, {"x": None}]}
        outlet_events[A].extra["first"] = 2
        yield Metadata(B, extra={"big": 2**60, "é": 1.5})

    outcome = attempt(python_dag(make, outlets=[A, B]))
    assert isinstance(outcome, Succeeded)
    assert [(e.asset.name, e.extra) for e in outcome.outlet_events] == [
        ("a", {"first": 2, "kept": [1, {"x": None}]}),
        ("b", {"big": 2**60, "é": 1.5}),
    ]


def test_async_generators_make_metadata_too() -> None:
    async def make() -> Any:
        yield Metadata(A, extra={"n": 1})

    outcome = attempt(python_dag(make, outlets=[A]))
    assert isinstance(outcome, Succeeded)
    assert outcome.outlet_events[0].extra == {"n": 1}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "extra['when']: a datetime"),
        ([Path("/x")], "extra['when'][0]: a PosixPath"),
        ({"a": {1: 2}}, "extra['when']['a']: the key 1"),
        (float("nan"), "extra['when']: a number that is not finite"),
        ("\ud800", "extra['when']: text with a lone surrogate"),
    ],
)
def test_extra_is_refused_at_the_assignment(value: Any, place: str) -> None:
    seen: list[str] = []

    def make(outlet_events: Any) -> None:
        try:
            outlet_events[A].extra["when"] = value
        except TypeError as error:
            seen.append(str(error))
            raise

    outcome = attempt(python_dag(make, outlets=[A]))
    assert isinstance(outcome, Failed)
    assert place in seen[0]
    assert place in outcome.error


def test_only_outlets_make_events() -> None:
    def make(outlet_events: Any) -> None:
        outlet_events[B].extra = {}

    outcome = attempt(python_dag(make, outlets=[A]))
    assert isinstance(outcome, Failed)
    assert "'b' is no outlet of this task; it has 'a'" in outcome.error


def test_a_skipped_task_makes_no_event() -> None:
    def skip() -> None:
        raise SkipTask

    assert not hasattr(attempt(python_dag(skip, outlets=[A])), "outlet_events")


# ------------------------------------------------------------------------------------------------- bash


def bash(command: str, **options: Any) -> DAG:
    with DAG("d", params={"word": "hello"}) as dag:
        BashOperator(task_id="b", bash_command=command, **options)
    return dag


def test_bash_gives_its_last_line() -> None:
    outcome = attempt(
        bash("echo first; echo '{{ params.word }}' $TIDEGATE_CTX_TASK_ID $X", env={"X": "y"}, append_env=True)
    )
    assert values(outcome) == {"return_value": "hello b y"}


@pytest.mark.parametrize(
    ("command", "end", "text"),
    [("exit 99", Skipped, "99"), ("exit 3", Failed, "exit code 3"), ("kill -9 $$", Failed, "signal 9")],
)
def test_bash_exit_codes(command: str, end: type[Any], text: str) -> None:
    outcome = attempt(bash(command))
    assert isinstance(outcome, end)
    assert text in (outcome.reason if isinstance(outcome, Skipped) else outcome.error)


@pytest.mark.timeout(25, method="thread")
def test_bash_ends_with_its_children(tmp_path: Path) -> None:
    outcome = attempt(bash(f"sleep 300 & echo $! > {tmp_path}/pid; wait"), execution_timeout=0.5)
    assert isinstance(outcome, Failed)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_bash_decorator() -> None:
    with DAG("d") as dag:

        @task.bash
        def greet(name: str) -> str:
            return f"echo hello {name} {{{{ run_id }}}}"

        greet("you")
    assert values(attempt(dag)) == {"return_value": f"hello you {asset_run().run_id}"}
