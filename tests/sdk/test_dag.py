from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.domain.specs import LoadResult, ScheduleKind
from app.sdk import (
    DAG,
    Asset,
    AssetSchedule,
    BaseOperator,
    Batch,
    EmptyOperator,
    PythonOperator,
    TaskGroup,
    XComArg,
    chain,
    cross_downstream,
    dag,
    task,
    task_group,
)
from app.sdk.errors import DeclarationError, DependencyCycle, DuplicateTaskId

A, B = Asset("a"), Asset("b")


def upstream(of: DAG) -> dict[str, list[str]]:
    return {member.task_id: sorted(member.upstream_task_ids) for member in of.tasks}


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        (None, ScheduleKind.NONE),
        ("@once", ScheduleKind.ONCE),
        ("@daily", ScheduleKind.CRON),
        ("*/5 * * * *", ScheduleKind.CRON),
        (timedelta(minutes=5), ScheduleKind.DELTA),
        (A, ScheduleKind.ASSETS),
        (A | B, ScheduleKind.ASSETS),
        ([A, B], ScheduleKind.ASSETS),
        (AssetSchedule(A, batch=Batch(max_events=3, max_wait=timedelta(seconds=5))), ScheduleKind.ASSETS),
    ],
)
def test_forms_of_schedules(schedule: Any, kind: ScheduleKind) -> None:
    assert DAG("d", schedule=schedule).schedule_spec.kind is kind


@pytest.mark.parametrize(
    "schedule", ["", "@never", "61 * * * *", [], [A, "b"], 5, {"a": 1}, b"@daily", timedelta(0), "@continuous"]
)
def test_refused_schedules_name_the_dag(schedule: Any) -> None:
    with pytest.raises(DeclarationError, match="DAG 'd': "):
        DAG("d", schedule=schedule)


def test_a_condition_with_too_many_alternatives_is_refused() -> None:
    pairs = [Asset(f"left_{n}") | Asset(f"right_{n}") for n in range(12)]
    with pytest.raises(DeclarationError, match=r"DAG 'd': .* more than 1,000 alternatives"):
        DAG("d", schedule=pairs)


def test_continuous_needs_one_run_at_a_time() -> None:
    assert DAG("d", schedule="@continuous", max_active_runs=1).schedule_spec.kind is ScheduleKind.CONTINUOUS


def test_continuous_needs_a_task(parse: Callable[[str], LoadResult]) -> None:
    made = parse("""
        from app.sdk import DAG, EmptyOperator

        DAG("on", schedule="@continuous", max_active_runs=1)
        with DAG("sound", schedule="@continuous", max_active_runs=1):
            EmptyOperator(task_id="e")
    """)
    assert made.error is not None
    assert (made.error.file, made.error.line) == ("pipeline.py", 4)
    assert "DAG 'on': schedule='@continuous' needs at least one task" in made.error.message


def test_cron_takes_the_zone_of_the_start() -> None:
    made = DAG("d", schedule="0 3 * * *", start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    assert made.schedule_spec.timezone == "Europe/Berlin"


def test_a_naive_start_is_utc_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="read as UTC"):
        made = DAG("d", start_date=datetime(2026, 1, 1))  # noqa: DTZ001
    assert made.start_date == datetime(2026, 1, 1, tzinfo=UTC)


def test_unknown_arguments() -> None:
    with pytest.raises(TypeError, match="unknown argument 'max_active_run'; did you mean 'max_active_runs'"):
        DAG("d", max_active_run=1)
    with pytest.raises(TypeError, match="it is called 'schedule'"):
        DAG("d", schedule_interval="@daily")
    with pytest.warns(UserWarning, match="access_control has no effect"):
        DAG("d", access_control={})
    with DAG("d"), pytest.raises(TypeError, match=r"task 'e': EmptyOperator takes no argument 'retrys'"):
        EmptyOperator(task_id="e", retrys=3)


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "x" * 251, "a\n", 5])
def test_ids(bad: Any) -> None:
    with pytest.raises(DeclarationError, match="dag_id"):
        DAG(bad)
    with DAG("d"), pytest.raises(DeclarationError, match="task_id"):
        EmptyOperator(task_id=bad)


def test_edges() -> None:
    with DAG("d") as made:
        a, b, c, d, e = (EmptyOperator(task_id=name) for name in "abcde")
        a >> [b, c] >> d
        e << d
        [a, b] >> e
    assert upstream(made) == {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["a", "b", "d"]}


def test_chain_and_cross() -> None:
    with DAG("d") as made:
        a, b, c, d, e, f = (EmptyOperator(task_id=name) for name in "abcdef")
        chain(a, [b, c], [d, e], f)
        with pytest.raises(DeclarationError, match="one length"):
            chain([a, b], [c, d, e])
    assert upstream(made) == {"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": ["c"], "f": ["d", "e"]}
    with DAG("d2") as crossed:
        a, b, c, d = (EmptyOperator(task_id=name) for name in "abcd")
        cross_downstream([a, b], [c, d])
    assert upstream(crossed) == {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"]}


def test_cycle_names_its_path() -> None:
    with DAG("d") as made:
        a, b, c, d = (EmptyOperator(task_id=name) for name in "abcd")
        a >> b >> c >> d
        d >> b
    with pytest.raises(DependencyCycle, match="b → c → d → b"):
        made.topological_sort()


def test_a_task_may_not_follow_itself() -> None:
    with DAG("d") as made:
        a = EmptyOperator(task_id="a")
        a >> a
    with pytest.raises(DependencyCycle, match="a → a"):
        made.topological_sort()


def test_duplicate_ids() -> None:
    with DAG("d"):
        EmptyOperator(task_id="a")
        with pytest.raises(DuplicateTaskId, match="two tasks are called 'a'"):
            EmptyOperator(task_id="a")


def test_tasks_of_different_dags_do_not_join() -> None:
    with DAG("one"):
        a = EmptyOperator(task_id="a")
    with DAG("two"):
        b = EmptyOperator(task_id="b")
    with pytest.raises(DeclarationError, match="different DAGs"):
        a >> b


def test_a_task_without_dag_joins_its_neighbours() -> None:
    with DAG("d") as made:
        a = EmptyOperator(task_id="a")
    a >> EmptyOperator(task_id="b")
    assert upstream(made) == {"a": [], "b": ["a"]}


def test_results_draw_edges_however_deep() -> None:
    with DAG("d") as made:

        @task
        def one() -> int:
            return 1

        @task
        def two(value: Any, *, more: Any = None) -> None: ...

        first = one()
        two([{"x": (first,)}], more={first["key"]})
        PythonOperator(task_id="plain", python_callable=print, op_kwargs={"v": [first]})
    assert upstream(made) == {"one": [], "two": ["one"], "plain": ["one"]}
    assert isinstance(first, XComArg)


def test_results_are_not_values() -> None:
    with DAG("d"):

        @task
        def one() -> int:
            return 1

        result = one()
        with pytest.raises(TypeError, match="no value yet"):
            list(result)
        with pytest.raises(TypeError, match="no value yet"):
            bool(result)
        with pytest.raises(DeclarationError, match="dynamic task mapping"):
            one.expand(x=[1])
        with pytest.raises(DeclarationError, match="key of an XCom"):
            result[0]


def test_calling_again_numbers_the_task() -> None:
    with DAG("d") as made:

        @task(retries=1)
        def one() -> int:
            return 1

        one()
        one()
        one.override(task_id="other", retries=4)()
    assert made.task_ids == ["one", "one__1", "other"]
    assert made.get_task("other").retries == 4


def test_wrong_calls_are_refused_while_declaring() -> None:
    with DAG("d"):

        @task
        def one(x: int, triggering_asset_events: Any, ti: Any) -> int:
            return x

        with pytest.raises(DeclarationError, match=r"task 'one': missing a required argument: 'x'"):
            one()
        one(x=1)
        with pytest.raises(DeclarationError, match="unexpected keyword argument 'y'"):
            one(x=1, y=2)


def test_dag_decorator() -> None:
    @dag(schedule=A, tags=["x"])
    def flow(size: int = 3) -> None:
        """What it does."""

        @task
        def one(value: int) -> int:
            return value

        one(size)

    made = flow(size=5)
    assert (made.dag_id, made.params, made.doc_md, made.tags) == ("flow", {"size": 5}, "What it does.", ("x",))
    assert made.task_ids == ["one"]

    @dag
    def bare() -> None: ...

    assert bare().dag_id == "bare"


def test_default_args_reach_subclasses() -> None:
    class Copy(BaseOperator):
        def __init__(self, *, target: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.target = target

    with DAG("d", default_args={"target": "there", "retries": 2, "owner": "me", "unknown": 1}):
        plain = Copy(task_id="a")  # type: ignore[call-arg]
        with TaskGroup("g", default_args={"retries": 5}):
            grouped = Copy(task_id="b", target="here")
    assert (plain.target, plain.retries, plain.owner) == ("there", 2, "me")
    assert (grouped.target, grouped.retries) == ("here", 5)
    with pytest.raises(TypeError, match="given by name"):
        EmptyOperator("a")  # type: ignore[call-arg]


def test_task_groups() -> None:
    with DAG("d") as made:
        start = EmptyOperator(task_id="start")
        with TaskGroup("outer") as outer:
            a = EmptyOperator(task_id="a")
            with TaskGroup("inner"):
                EmptyOperator(task_id="b") << a

        @task_group
        def after() -> None:
            EmptyOperator(task_id="c")

        start >> outer >> after()
    assert upstream(made) == {
        "start": [], "outer.a": ["start"], "outer.inner.b": ["outer.a"], "after.c": ["outer.inner.b"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
        ({"retry_delay": timedelta(seconds=-1)}, "retry_delay"),
        ({"trigger_rule": "never"}, "trigger_rule 'never' is unknown; known: all_success"),
        ({"pool_slots": 0}, "pool_slots"),
        ({"outlets": ["a"]}, "outlets must be assets"),
    ],
)
def test_refused_task_options(options: dict[str, Any], message: str) -> None:
    with DAG("d"), pytest.raises((DeclarationError, TypeError), match=message):
        EmptyOperator(task_id="a", **options)


def test_limits_that_are_not_enforced_are_told() -> None:
    with pytest.warns(UserWarning, match="dagrun_timeout is shown but not enforced"):
        DAG("slow", dagrun_timeout=timedelta(hours=1))
    with pytest.warns(UserWarning, match="pool 'narrow' is shown but limits nothing"), DAG("pooled"):
        EmptyOperator(task_id="one", pool="narrow")


def test_nothing_stays_open_after_a_failure() -> None:
    def broken() -> None:
        with DAG("d"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert EmptyOperator(task_id="a").dag is None


def test_params_must_be_json(recwarn: Any) -> None:
    with pytest.raises(DeclarationError, match=r"params\['x'\]: a set"):
        DAG("d", params={"x": {1}})


def test_multiple_outputs_by_annotation() -> None:
    makers: list[Callable[..., Any]] = []
    with DAG("d") as made:

        @task
        def a() -> dict[str, int]:
            return {}

        @task
        def b() -> int:
            return 1

        makers += [a, b]
        a()
        b()
    assert [member.multiple_outputs for member in made.tasks] == [True, False]
