from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.states import RunState, TaskState
from app.sdk.errors import DeclarationError, PipelineError
from app.sdk.local_run import run_dag_locally

Write = Callable[[str, str], Path]


def test_a_whole_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        "p.py",
        """
        from app.sdk import *
        a, b = Asset("a"), Asset("b")
        with DAG("d", schedule=a | b):
            @task(retries=2, retry_delay=0, outlets=[b])
            def first(triggering_asset_events, ti):
                if ti.try_number < 3:
                    raise RuntimeError("again")
                payload = triggering_asset_events[a][0].payload
                yield Metadata(b, extra={"n": payload["n"]})
                return payload["n"] + 1

            @task
            def second(n):
                print("got", n)
                raise SkipTask

            third = EmptyOperator(task_id="third")
            last = EmptyOperator(task_id="last", trigger_rule="all_done")
            second(first()) >> third >> last
    """,
    )
    lines: list[str] = []
    event = {"asset": "a", "extra": {"from_trigger": True, "payload": {"n": 1}}}
    result = run_dag_locally(path, event=event, say=lines.append)
    assert result.state is RunState.SUCCESS
    assert {task_id: (task.state, task.tries) for task_id, task in result.tasks.items()} == {
        "first": (TaskState.SUCCESS, 3),
        "second": (TaskState.SKIPPED, 1),
        "third": (TaskState.SKIPPED, 0),
        "last": (TaskState.SUCCESS, 1),
    }
    assert result.tasks["first"].xcoms == {"return_value": 2}
    assert [event.extra for event in result.outlet_events] == [{"n": 1}]
    assert capsys.readouterr().out == "got 2\n"
    assert any("RuntimeError: again" in line for line in lines)


def test_failures(write: Write) -> None:
    path = write(
        "p.py",
        """
        from app.sdk import *
        with DAG("d"):
            @task
            def first(ds): raise ValueError(ds)
            first() >> EmptyOperator(task_id="after")
        DAG("other")
    """,
    )
    result = run_dag_locally(path, "d", say=str)
    assert result.state is RunState.FAILED
    assert result.tasks["after"].state is TaskState.UPSTREAM_FAILED
    with pytest.raises(DeclarationError, match="2 DAGs"):
        run_dag_locally(path)
    with pytest.raises(DeclarationError, match="not scheduled on assets"):
        run_dag_locally(path, "d", event={})
    with pytest.raises(PipelineError, match="no DAG 'none'"):
        run_dag_locally(path, "none")


def test_an_event_that_is_none_is_told(write: Write) -> None:
    path = write(
        "p.py",
        """
        from app.sdk import *
        DAG("d", schedule=[Asset("a"), Asset("b")])
    """,
    )
    with pytest.raises(DeclarationError, match=r"event\.extra: must be a mapping, not a int"):
        run_dag_locally(path, event={"asset": "a", "extra": 5}, say=str)
    with pytest.raises(DeclarationError, match=r"event\['n'\]: "):
        run_dag_locally(path, event={"n": float("nan")}, say=str)


def test_what_a_deployment_warns_of_or_refuses_is_told(write: Write) -> None:
    path = write(
        "p.py",
        """
        from app.sdk import *
        with DAG("d", schedule=None):
            EmptyOperator(task_id="t", depends_on_past=True)
    """,
    )
    lines: list[str] = []
    assert run_dag_locally(path, say=lines.append).state is RunState.SUCCESS
    assert "p.py:4: task 't': depends_on_past has no effect" in lines[0]
    path = write(
        "p.py",
        """
        from app.sdk import *
        class Broken(BaseEventTrigger):
            def serialize(self): raise RuntimeError("cannot be stored")
            async def run(self): yield TriggerEvent(1)
        DAG("d", schedule=Asset("a", watchers=[AssetWatcher("w", Broken())]))
    """,
    )
    with pytest.raises(PipelineError, match="cannot be stored"):
        run_dag_locally(path, event={}, say=str)


def test_broken_file(write: Write) -> None:
    with pytest.raises(PipelineError, match=r"p\.py:1: "):
        run_dag_locally(write("p.py", "1 / 0"))
