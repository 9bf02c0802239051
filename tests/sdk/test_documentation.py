"""The snippets of docs/authoring.md, run as they stand, for each kind of cause they speak of."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.domain.states import RunState
from app.sdk.context import DATE_VARIABLES
from app.sdk.loader import LoadedFile, describe
from app.sdk.local_run import LocalRunResult, run_dag_locally
from tests.sdk.attempts import attempt, time_run
from tests.waiting import eventually
from watchers.testing import driving

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "authoring.md").read_text()
SNIPPETS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python run\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
BY_TITLE = dict(SNIPPETS)
WATCHER = {"from_trigger": True, "payload": {"order": 17}}
REST = {"from_rest_api": True, "order": 17}


def run(pipelines: Path, title: str, dag_id: str | None = None, **options: Any) -> LocalRunResult:
    path = pipelines / "snippet.py"
    path.write_text(BY_TITLE[title])
    result = run_dag_locally(path, dag_id, say=str, **options)
    assert result.state is RunState.SUCCESS, result
    return result


def test_all_snippets_are_found() -> None:
    assert len(SNIPPETS) == TEXT.count("```python run") == 7


@pytest.mark.parametrize("title", BY_TITLE)
def test_every_snippet_loads(title: str, pipelines: Path, load: Callable[[str], LoadedFile]) -> None:
    (pipelines / "snippet.py").write_text(BY_TITLE[title])
    result = describe(load("snippet.py"))
    assert result.error is None, result.error
    assert result.dags
    assert result.warnings == ()


def test_events(pipelines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(pipelines, "A DAG started by events", event=WATCHER)
    assert capsys.readouterr().out == "17\n"


def test_a_batch_of_three(pipelines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    causes = [{"from_trigger": True, "payload": {"order": number}} for number in (1, 2, 3)]
    run(pipelines, "A DAG started by events", event=causes)
    assert capsys.readouterr().out == "1\n2\n3\n"


@pytest.mark.parametrize(
    ("cause", "payloads"),
    [(WATCHER, [{"order": 17}] * 2), (REST, [None, None])],
    ids=["watcher", "API"],
)
def test_payloads_of_two_assets(
    cause: dict[str, Any], payloads: list[Any], pipelines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(pipelines, "Reading the payload", event=cause)
    printed = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [payloads, cause, {"orders": [cause], "prices": [cause]}]
    assert result.tasks["each"].xcoms["return_value"] == "prices 1"
    assert "17" in result.tasks["first"].xcoms["return_value"]


async def test_a_trigger_of_ones_own(
    pipelines: Path, load: Callable[[str], LoadedFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pipelines / "snippet.py").write_text(BY_TITLE["Your own trigger"])
    [asset] = load("snippet.py").dags["on_message"].assets()
    kind = type(asset.watchers[0].trigger)
    for name in ("1.msg", "2.msg"):
        (tmp_path / name).write_text(f"body of {name}")
    left: list[list[str]] = []

    def store(_: object) -> None:
        left.append(sorted(path.name for path in tmp_path.glob("*.msg")))

    async with driving(kind(str(tmp_path), pause=0.01), store=store) as recording:
        events = await recording.until(2)
        await eventually(lambda: not list(tmp_path.glob("*.msg")))
    assert left == [["1.msg", "2.msg"], ["2.msg"]]
    assert [event.key for event in events] == ["1.msg", "2.msg"]
    run(pipelines, "Your own trigger", event={"from_trigger": True, "payload": events[0].payload})
    assert capsys.readouterr().out == "['body of 1.msg']\n"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("@task.branch\n    def f(): ...", "@task.branch is not available"),
        ("@task.short_circuit\n    def f(): ...", "@task.short_circuit is not available"),
        ("task(print).expand(x=[1])", "dynamic task mapping (.expand) is not available"),
        ("EmptyOperator(task_id='e').defer()", "no attribute 'defer'"),
        ("Asset.ref(name='a')", "no attribute 'ref'"),
        ("from airflow.sdk import AssetAlias", "no 'AssetAlias' in 'airflow.sdk'"),
        ("from airflow.sdk import asset", "no 'asset' in 'airflow.sdk'"),
        ("from airflow.sdk import setup", "no 'setup' in 'airflow.sdk'"),
        ("from airflow.sensors.base import BaseSensorOperator", "no module 'airflow.sensors'"),
        ("from airflow.timetables.trigger import CronTriggerTimetable", "no module 'airflow.timetables'"),
        ("from airflow.hooks.base import BaseHook", "no module 'airflow.hooks'"),
    ],
)
def test_what_there_is_not_is_told_with_its_line(
    source: str, told: str, pipelines: Path, load: Callable[[str], LoadedFile]
) -> None:
    text = f"from app.sdk import DAG, Asset, EmptyOperator, task\n\nwith DAG('d'):\n    {source}\n"
    (pipelines / "snippet.py").write_text(text)
    error = describe(load("snippet.py")).error
    assert error is not None
    assert told in error.message
    assert error.line == 4


def test_tasks(pipelines: Path) -> None:
    result = run(pipelines, "Tasks")
    assert result.tasks["shell"].xcoms["return_value"] == "stored 10"
    assert [event.extra for event in result.outlet_events] == [{"count": 10}, {"again": True}]


def test_names_listed_are_those_there_are() -> None:
    from app.sdk import DAG, PythonOperator

    section = TEXT.split("## What templates and parameters may name")[1].split("\n## ")[0]
    listed = set(" ".join(re.findall(r"`([a-z_ \n]+)`", section.split("\n\n")[1])).split())
    seen: set[str] = set()
    with DAG("d") as dag:
        PythonOperator(task_id="t", python_callable=lambda **context: seen.update(context))
    attempt(dag, run=time_run())
    assert listed == seen
    assert set(DATE_VARIABLES) <= listed
