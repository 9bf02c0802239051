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
    assert len(SNIPPETS) == TEXT.count("```python run") == 5


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
