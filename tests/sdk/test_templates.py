from __future__ import annotations

from typing import Any

import pytest

from app.domain.orders import Failed, Succeeded
from app.sdk import DAG, Asset, BaseOperator
from app.sdk.context import DATE_VARIABLES
from tests.sdk.attempts import asset_run, attempt, event, time_run, values

A = Asset("a")


class Echo(BaseOperator):
    template_fields = ("value",)

    def __init__(self, *, value: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value

    def execute(self, context: Any) -> Any:
        return self.value


def echo(value: Any, **options: Any) -> DAG:
    with DAG("d", schedule=A, params={"n": 3}, **options) as dag:
        Echo(task_id="echo", value=value)
    return dag


def rendered(value: Any, *, run: Any = None, **options: Any) -> Any:
    outcome = attempt(echo(value, **options), run=run)
    assert isinstance(outcome, Succeeded), outcome
    return values(outcome)["return_value"]


CAUSE = event(A, {"from_trigger": True, "payload": {"order": 17}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{ params.n }}", "3"),
        ("{{ dag.dag_id }}/{{ task.task_id }}/{{ ti.try_number }}", "d/echo/1"),
        ("{{ run_id }}", asset_run().run_id),
        ("{{ dag_run.run_after.isoformat() }}", "2026-03-02T12:00:00+00:00"),
        ("{{ dag_run.consumed_asset_events[0].payload.order }}", "17"),
        ("{{ (triggering_asset_events.values() | first | first).extra['payload']['order'] }}", "17"),
        ("{{ ds | default('none') }}", "none"),
        ("{% if logical_date is defined %}yes{% else %}no{% endif %}", "no"),
        ("{{ macros.ds_add('2026-03-02', 3) }}", "2026-03-05"),
        ("{{ task_instance_key_str }}", f"d__echo__{asset_run().run_id}"),
        ("trailing newline {{ 1 }}\n", "trailing newline 1\n"),
    ],
)
def test_rendered(text: str, expected: str) -> None:
    assert rendered(text, run=asset_run(CAUSE)) == expected


def test_nested_values_keep_their_shape() -> None:
    value = [{"a": ("{{ params.n }}", 5)}, {"{{ kept }}"}, None]
    assert rendered([value[0], None, ("{{ params.n }}",)]) == [{"a": ("3", 5)}, None, ("3",)]


def test_native_values() -> None:
    assert rendered("{{ params.n }}", render_template_as_native_obj=True) == 3


def test_macros_and_filters_of_the_author() -> None:
    options = {"user_defined_macros": {"twice": lambda x: x * 2}, "user_defined_filters": {"loud": str.upper}}
    assert rendered("{{ twice(params.n) }} {{ 'a' | loud }}", **options) == "6 A"


def test_variables_and_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_VAR_PLACE", "here")
    monkeypatch.setenv("TIDEGATE_VAR_SIZES", '{"a": [1]}')
    monkeypatch.setenv("TIDEGATE_CONN_DB", "postgres://me:secret@host:5432/x")
    text = "{{ var.value.place }} {{ var.json.sizes.a[0] }} {{ conn.db.host }} {{ var.value.get('none', 'x') }}"
    assert rendered(text) == "here 1 host x"
    outcome = attempt(echo("{{ var.value.missing }}"))
    assert isinstance(outcome, Failed)
    assert "TIDEGATE_VAR_MISSING" in outcome.error


@pytest.mark.parametrize("name", DATE_VARIABLES)
def test_dates_render_in_time_runs_and_are_explained_in_asset_runs(name: str) -> None:
    text = f"{{{{ {name} }}}}"
    assert rendered(text, run=time_run()).startswith("2026")
    outcome = attempt(echo(text), run=asset_run(CAUSE))
    assert isinstance(outcome, Failed)
    assert f"template field echo.value: '{name}' is not there" in outcome.error
    assert "dag_run.run_after" in outcome.error


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{{ nothing }}", "'nothing' is undefined; known: conn, dag, dag_run"),
        ({"a": ["{{ nothing }}"]}, "template field echo.value['a'][0]: "),
        ("{{ params.missing }}", "has no attribute 'missing'"),
        ("{{ execution_date }}", "'execution_date' is not there; use logical_date"),
        ("{{ unclosed", "line 1: "),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ triggering_asset_events['a'] }}", "the key is an Asset, not str"),
    ],
)
def test_faults_name_field_and_variable(value: Any, message: str) -> None:
    outcome = attempt(echo(value))
    assert isinstance(outcome, Failed)
    assert message in outcome.error
