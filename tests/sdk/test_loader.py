from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.specs import LoadResult
from app.sdk.errors import PipelineError
from app.sdk.loader import LoadedFile, describe
from watchers.describe import build_trigger
from watchers.triggers import BaseEventTrigger

Parse = Callable[[str], LoadResult]
Write = Callable[[str, str], Path]
Load = Callable[[str], LoadedFile]

TRIGGER = """
    from watchers.triggers import BaseEventTrigger

    class Mine(BaseEventTrigger):
        def __init__(self, **kwargs):
            self.kwargs = kwargs
        def serialize(self):
            return f"{__name__}.Mine", self.kwargs
        async def run(self):
            yield
"""


LOCAL_CLASS = """
def f():
    class Inner(Mine):
        def serialize(self):
            return f"{__name__}.{type(self).__qualname__}", {}
    return Inner()
w = f()
"""


def ids(result: LoadResult) -> list[str]:
    assert result.error is None, result.error
    return [dag.dag_id for dag in result.dags]


def test_dags_count_wherever_they_are_made(parse: Parse) -> None:
    result = parse("""
        from app.sdk import DAG, dag
        kept = DAG("kept")
        with DAG("unnamed"): pass
        def make():
            return DAG("in_a_function")
        make()
        [DAG(f"loop_{n}") for n in range(2)]
        @dag
        def decorated(): pass
        decorated()
        @dag
        def never_called(): pass
    """)
    assert ids(result) == ["kept", "unnamed", "in_a_function", "loop_0", "loop_1", "decorated"]
    assert [dag.line for dag in result.dags] == [3, 4, 6, 8, 8, 11]
    assert {dag.fileloc for dag in result.dags} == {"pipeline.py"}


def test_a_dag_belongs_to_the_file_that_makes_it(write: Write, load: Load) -> None:
    write(
        "factory.py",
        """
        from app.sdk import DAG
        def make(name): return DAG(name)
        own = DAG("of_factory")
    """,
    )
    write(
        "user.py",
        """
        from factory import make, own
        make("of_user")
    """,
    )
    result = describe(load("user.py"))
    assert ids(result) == ["of_user"]
    assert result.modules == ("factory.py", "user.py")
    assert result.warnings == ("DAG 'of_factory' is made in factory.py and belongs to that file",)
    assert ids(describe(load("factory.py"))) == ["of_factory"]


def test_modules_include_what_tasks_import_later(write: Write, load: Load) -> None:
    write("sales/__init__.py", "")
    write("sales/beside.py", "import sales.deep")
    write("sales/deep.py", "")
    write("sales/unused.py", "")
    write("shared.py", "")
    write("pkg/__init__.py", "from . import inner")
    write("pkg/inner.py", "")
    write(
        "sales/orders.py",
        """
        from app.sdk import DAG, task
        from . import beside
        with DAG("d"):
            @task
            def f():
                import shared
                from pkg import inner
            f()
    """,
    )
    loaded = load("sales/orders.py")
    assert loaded.error is None
    assert loaded.module_name == "sales.orders"
    assert loaded.modules == (
        "pkg/__init__.py", "pkg/inner.py", "sales/__init__.py", "sales/beside.py", "sales/deep.py", "sales/orders.py",
        "shared.py",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["queue.py", "01-first.py", "json/x.py", "sub/dir/deep.py"])
def test_any_file_name(name: str, write: Write, load: Load) -> None:
    import json
    import queue

    declare = "DAG('d', schedule=Asset('a', watchers=[AssetWatcher('w', Mine(x=1))]))"
    write(name, TRIGGER.replace("\n    ", "\n") + f"from app.sdk import *\n{declare}\n")
    loaded = load(name)
    result = describe(loaded)
    assert ids(result) == ["d"]
    (watcher,) = result.dags[0].assets[0].watchers
    assert watcher.trigger.in_bundle
    assert isinstance(build_trigger(watcher.trigger.classpath, watcher.trigger.kwargs), BaseEventTrigger)
    assert sys.modules["queue"] is queue
    assert sys.modules["json"] is json
    assert sys.modules[loaded.module_name].__name__ == loaded.module_name


@pytest.mark.parametrize("name", ["app.py", "watchers.py", "providers/x.py", "app/__init__.py"])
def test_names_that_would_hide_ours(name: str, write: Write, load: Load) -> None:
    write(name, "")
    error = load(name).error
    assert error is not None
    assert error.file == name
    assert "would hide Tidegate's own" in error.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\nraise SystemExit(3)", 2, "ends the interpreter"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("\nclass Odd(BaseException): pass\nraise Odd('x')", 3, "Odd: x"),
        ("def f(:\n  pass", 1, "SyntaxError"),
        ("x = '\0'", None, "null bytes"),
        ("import missing_module", 1, "No module named 'missing_module'"),
        ("def f():\n    1 / 0\nf()", 2, "ZeroDivisionError"),
        ("from app.sdk import DAG\n\nDAG('a b')", 3, "only letters"),
        ("from app.sdk import DAG\nDAG('d')\nDAG('d')", 3, "two DAGs of this file are called 'd' (lines 2 and 3)"),
        ("from app.sdk import *\nwith DAG('d'):\n  a = EmptyOperator(task_id='a')\n  a >> a", 2, "DAG 'd': tasks"),
        ("class E(Exception):\n  def __str__(self): raise self\nraise E", 3, "cannot be made"),
        ("def f(): f()\nf()", 1, "RecursionError"),
        ("raise ValueError('\\ud800')", 1, "ValueError: \\ud800"),
        ("from airflow.sdk import nothing", 1, "Tidegate has no 'nothing'"),
        ("import airflow.providers.google", 1, "Tidegate has no module 'airflow.providers.google'"),
    ],
)
def test_errors_are_located(text: str, line: int | None, message: str, parse: Parse) -> None:
    result = parse(text)
    assert result.error is not None
    assert message in result.error.message
    assert (result.error.file, result.error.line) == ("pipeline.py", line)
    assert result.dags == ()
    assert "loader.py" not in (result.error.traceback or "")
    assert result.error.traceback


def test_an_error_in_a_helper_is_located_there(write: Write, load: Load) -> None:
    write("helper.py", "def f():\n    raise ValueError('deep')\n")
    write("p.py", "import helper\nhelper.f()\n")
    loaded = load("p.py")
    assert loaded.error is not None
    assert (loaded.error.file, loaded.error.line) == ("helper.py", 2)
    assert 'p.py", line 2' in (loaded.error.traceback or "")
    with pytest.raises(PipelineError, match=r"helper\.py:2: ValueError: deep"):
        loaded.dag("d")


def test_missing_file_and_paths_out_of_the_folder(load: Load) -> None:
    for name, message in [("none.py", "no file"), ("../x.py", "no path below"), ("/etc/x.py", "no path below")]:
        error = load(name).error
        assert error is not None
        assert message in error.message


def test_an_edit_within_the_second_counts(write: Write, load: Load, pipelines: Path) -> None:
    write("helper.py", "name = 'aa'")
    write("p.py", "from app.sdk import DAG\nimport helper\nDAG(helper.name)")
    assert ids(describe(load("p.py"))) == ["aa"]
    write("helper.py", "name = 'bb'")
    assert ids(describe(load("p.py"))) == ["bb"]
    assert not list(pipelines.rglob("*.pyc"))


def test_nothing_is_left_behind(write: Write, load: Load, pipelines: Path) -> None:
    before = (list(sys.path), set(sys.modules), list(sys.meta_path), list(sys.path_hooks))
    write("helper.py", "")
    write("p.py", "import helper\nimport airflow.sdk\nfrom app.sdk import DAG\nDAG('d').__enter__()\n")
    loaded = load("p.py")
    assert loaded.error is None
    assert "helper" in sys.modules
    loaded.unload()
    from app.sdk.scopes import current_dag

    assert current_dag() is None
    assert (list(sys.path), set(sys.modules), list(sys.meta_path), list(sys.path_hooks)) == before


def test_warnings_of_the_folder_are_told(parse: Parse) -> None:
    result = parse("""
        import warnings
        from app.sdk import DAG, Asset
        warnings.warn("mine")
        DAG("d", schedule=Asset("s3://user:hunter2@bucket/key"))
    """)
    assert result.warnings[0] == "pipeline.py:4: mine"
    assert "password" in result.warnings[1]
    assert "hunter2" not in str(result)


def test_passwords_do_not_get_into_errors(parse: Parse) -> None:
    result = parse("""
        from app.sdk import DAG, Asset
        DAG("d", schedule=Asset("s3://user:hunter2@bucket/key", extra={"x": {1}}))
    """)
    assert result.error is not None
    assert "hunter2" not in str(result)


def test_the_traceback_shows_no_text_under_a_telling_name(parse: Parse) -> None:
    result = parse("""
        from app.sdk import DAG
        DAG("d", api_token="hunter2", schedule=missing)
    """)
    assert result.error is not None
    assert "hunter2" not in str(result)
    assert 'api_token="***", schedule=missing' in (result.error.traceback or "")


def test_watchers_become_specs(parse: Parse) -> None:
    result = parse(
        TRIGGER
        + """
    from app.sdk import DAG, Asset, AssetWatcher
    from datetime import timedelta
    from watchers.temporal import TimeDeltaTrigger
    a = Asset("a", watchers=[AssetWatcher("w", Mine(x=(1, 2), y={timedelta(1)}), when="value > `1`")])
    with DAG("d", schedule=a | Asset("b")):
        pass
    """
    )
    assert ids(result) == ["d"]
    (a, b) = result.dags[0].assets
    (watcher,) = a.watchers
    assert (watcher.name, watcher.when, watcher.trigger.classpath) == ("w", "value > `1`", "pipeline.Mine")
    assert watcher.trigger.in_bundle
    assert build_trigger(watcher.trigger.classpath, watcher.trigger.kwargs).kwargs["x"] == (1, 2)  # type: ignore[attr-defined]
    assert b.watchers == ()


@pytest.mark.parametrize(
    "declare",
    [
        "DAG('d', description=3)",
        "DAG('d', is_paused_upon_creation='no')",
        "with DAG('d'): EmptyOperator(task_id='t', queue=5)",
        "with DAG('d'): EmptyOperator(task_id='t', priority_weight=None)",
        "with DAG('d'): EmptyOperator(task_id='t', doc='\\ud800')",
    ],
)
def test_values_of_a_wrong_kind(declare: str, parse: Parse) -> None:
    result = parse(f"from app.sdk import *\n{declare}\n")
    assert result.error is not None
    assert "DAG 'd': a declared value is of a wrong kind" in result.error.message
    assert result.error.line == 2


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        ("w = Mine(a=[1, 2, object()])", r"asset 'x' watcher 'y': pipeline.Mine(a[2]): "),
        (LOCAL_CLASS, "asset 'x' watcher 'y': "),
        ("class Bad(Mine):\n  def serialize(self): raise RuntimeError('no')\nw = Bad()", "RuntimeError: no"),
        ("class Bad(Mine):\n  def serialize(self): return 3\nw = Bad()", "asset 'x' watcher 'y': "),
    ],
)  # fmt: skip
def test_watchers_refused(declare: str, message: str, parse: Parse) -> None:
    result = parse(
        TRIGGER.replace("\n    ", "\n")
        + declare
        + "\nfrom app.sdk import *\nfrom watchers.watcher import AssetWatcher\n"
        + "DAG('d', schedule=Asset('x', watchers=[AssetWatcher('y', w)]))\n"
    )
    assert result.error is not None
    assert message in result.error.message
    assert result.error.line is not None


def test_a_schema_becomes_canonical_text(parse: Parse) -> None:
    result = parse(
        TRIGGER
        + """
    from app.sdk import DAG, Asset, AssetWatcher
    schema = {"type": "object", "required": ["id"]}
    DAG("d", schedule=Asset("a", watchers=[AssetWatcher("w", Mine(), schema=schema)]))
    """
    )
    assert ids(result) == ["d"]
    (watcher,) = result.dags[0].assets[0].watchers
    assert watcher.schema == '{"required":["id"],"type":"object"}'


@pytest.mark.parametrize("schema", ["{'type': 'intt'}", "{'$ref': 'https://example.com/order.json'}"])
def test_a_bad_schema_is_a_located_error(schema: str, parse: Parse) -> None:
    result = parse(
        f"""
        from app.sdk import DAG, Asset, AssetWatcher
        from watchers import FileEventTrigger
        strict = AssetWatcher("w", FileEventTrigger("/x"), schema={schema})
        """
    )
    assert result.error is not None
    assert (result.error.file, result.error.line) == ("pipeline.py", 4)
    assert "watcher 'w': schema: " in result.error.message


def test_mentions_of_an_asset_are_merged(parse: Parse) -> None:
    result = parse(
        TRIGGER
        + """
    from app.sdk import DAG, Asset, AssetWatcher, EmptyOperator
    with DAG("d", schedule=Asset("a", watchers=[AssetWatcher("w", Mine())])):
        EmptyOperator(task_id="t", outlets=[Asset("a"), Asset("b")], inlets=Asset("a", extra={"x": 1}))
    """
    )
    assert ids(result) == ["d"]
    (a, b) = result.dags[0].assets
    assert (a.name, a.extra, [watcher.name for watcher in a.watchers]) == ("a", {"x": 1}, ["w"])
    assert [key.name for key in result.dags[0].tasks[0].outlets] == ["a", "b"]
    assert b.name == "b"


def test_fields_import_names(parse: Parse) -> None:
    result = parse("""
        from airflow.sdk import DAG, Asset, AssetWatcher, task, chain, get_current_context
        from airflow.providers.standard.operators.empty import EmptyOperator
        from airflow.providers.standard.operators.bash import BashOperator
        from airflow.operators.python import PythonOperator
        from airflow.triggers.base import BaseEventTrigger, TriggerEvent
        from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
        from airflow.exceptions import AirflowSkipException, AirflowFailException
        from airflow.decorators import dag
        from airflow.models import Variable
        from airflow.models.baseoperator import BaseOperator
        from airflow.utils.trigger_rule import TriggerRule
        import airflow, airflow.sdk as sdk
        import app.sdk
        assert airflow.DAG is DAG is sdk.DAG is app.sdk.DAG
        try:
            import airflow.providers.amazon.aws.hooks.s3
        except ImportError:
            pass
        with DAG("d"):
            EmptyOperator(task_id="e", trigger_rule=TriggerRule.ALL_DONE)
    """)
    assert ids(result) == ["d"]


def test_every_compatible_name_exists() -> None:
    import importlib

    from app.sdk.compatibility import MODULES

    for names in MODULES.values():
        for name, source in names.items():
            module, _, member = source.partition(":")
            assert hasattr(importlib.import_module(module), member or name), source


def test_declarations_in_threads(parse: Parse) -> None:
    result = parse("""
        import threading
        from app.sdk import DAG
        thread = threading.Thread(target=DAG, args=["from_a_thread"])
        thread.start()
        thread.join()
    """)
    assert ids(result) == ["from_a_thread"]
