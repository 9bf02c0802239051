"""Commands that look into the database and change it, with every option; wrong values exit with 2 and a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.interfaces.cli.describe import page
from tests.cli.conftest import Tidegate
from tests.factories import make_dag, on_assets, task
from tests.http.filled import DAG, OTHER, RETIRED, fill
from tests.triggerer.world import World

ROOT = Path(__file__).resolve().parents[2]
InWorld = Callable[..., Any]

PIPELINE = """
from __future__ import annotations

from app.sdk import DAG, Asset, task

with DAG("one", schedule=Asset("orders")):

    @task
    def show(triggering_asset_events, params):
        for events in triggering_asset_events.values():
            for event in events:
                print("saw", event.extra)

    show()

with DAG("two", schedule=None):

    @task
    def fail():
        raise RuntimeError("on purpose")

    fail()
"""


async def two_dags(world: World) -> None:
    """A DAG on a and b, and a second one."""
    async with world.database.hot() as hot:
        await make_dag(hot, "d", schedule=on_assets("a & b"), tasks=[task("one")])
        await make_dag(hot, "e", tasks=[task("one")])


def test_lists_show_everything(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(fill)
    assert [row["dag_id"] for row in tidegate("dags", "list", "-o", "json").rows] == [OTHER, DAG]
    every = tidegate("dags", "list", "--all", "--output", "json").rows
    assert {row["dag_id"]: (row["paused"], row["active"]) for row in every} == {
        OTHER: (True, True),
        DAG: (False, True),
        RETIRED: (False, False),
    }
    assert [row["dag_id"] for row in tidegate("dags", "list", "--pattern", "CONS", "-o", "json").rows] == [DAG]
    table = tidegate("dags", "list")
    assert (table.status, DAG in table.out, "dag_id" in table.out) == (0, True, True)

    assets = tidegate("assets", "list", "-o", "json").rows
    assert [(row["name"], row["scheduled_dags"]) for row in assets] == [
        ("a", [OTHER, DAG]),
        ("b", [DAG]),
        ("c", [OTHER]),
    ]
    assert assets[0]["last_event_at"].startswith("20")
    assert len(tidegate("assets", "list", "--all", "-o", "json").rows) == 4
    assert [row["name"] for row in tidegate("assets", "list", "--pattern", "b", "-o", "json").rows] == ["b"]
    assert [row["name"] for row in tidegate("assets", "list", "--uri-pattern", "//c", "-o", "json").rows] == ["c"]

    triggers = tidegate("triggers", "list", "-o", "json").rows
    assert len(triggers) == 5
    assert triggers[0]["watchers"] == ["a/watch"]
    assert triggers[4]["watchers"] == [f"{DAG}/run:queued+1/t_deferred"]
    assert "kwargs" not in triggers[0]
    [running] = tidegate("triggers", "list", "--status", "running", "-o", "json").rows
    assert running["throttled_reason"] is None
    [failed] = tidegate("triggers", "list", "--status", "backing_off", "-o", "json").rows
    assert tidegate("triggers", "retry", failed["id"]).out == f"trigger {failed['id']} starts again now\n"
    refused = tidegate("triggers", "retry", running["id"])
    assert (refused.status, refused.err.startswith(f"error: Trigger {running['id']} is running")) == (1, True)
    assert tidegate("triggers", "retry", 999).err == "error: There is no trigger 999.\n"
    assert running["status"] == "running"


def test_a_run_by_hand(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(two_dags)
    made = tidegate(
        "dags", "trigger", "d", "--run-id", "mine", "--conf", '{"a": 1}', "--logical-date", "2026-01-01T00:00:00+01:00",
        "--note", "why", "-o", "json",
    )  # fmt: skip
    assert (made.status, made.rows) == (0, [{"dag_id": "d", "run_id": "mine", "state": "queued"}])
    [row] = in_world(lambda world: world.fetch("SELECT run_id, conf, note, triggered_by, logical_date FROM dag_run"))
    assert (row["run_id"], row["conf"], row["note"], row["triggered_by"]) == ("mine", '{"a":1}', "why", "cli")
    assert row["logical_date"].isoformat() == "2025-12-31T23:00:00+00:00"

    assert tidegate("dags", "trigger", "d").status == 0
    again = tidegate("dags", "trigger", "d", "-r", "mine")
    assert (again.status, "exists already" in again.err) == (1, True)
    unknown = tidegate("dags", "trigger", "nothing")
    assert (unknown.status, unknown.err) == (1, "error: There is no DAG 'nothing'.\n")
    assert tidegate("dags", "trigger", "d", "-r", "a/b").status == 1


def test_pausing(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(two_dags)
    assert tidegate("dags", "pause", "d", "e").out == "d is paused now\ne is paused now\n"
    assert tidegate("dags", "pause", "d").out == "d was paused already\n"
    assert tidegate("dags", "unpause", "d").out == "d is unpaused now\n"
    unknown = tidegate("dags", "unpause", "nothing")
    assert (unknown.status, "no DAG nothing" in unknown.err) == (1, True)


def test_an_event_by_hand(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(two_dags)
    asset = in_world(lambda world: world.value("SELECT id FROM asset WHERE name = 'a'"))
    for named in (("a",), ("--name", "a"), ("--id", asset), ("--uri", "x://a"), ("a", "--id", asset, "--uri", "x://a")):
        ended = tidegate("assets", "emit", *named, "--extra", '{"n": 1}', "-o", "json")
        assert (ended.status, ended.rows[0]["asset_name"], ended.rows[0]["created"]) == (0, "a", True), ended.err
    keyed = [tidegate("assets", "emit", "a", "--idempotency-key", "k", "-o", "json").rows[0] for _ in range(2)]
    assert keyed[0]["event_id"] == keyed[1]["event_id"]
    assert [row["created"] for row in keyed] == [True, False]
    assert in_world(lambda world: world.value("SELECT count(*) FROM demand")) == 6

    refused = [
        (("a", "--idempotency-key", "k", "--extra", '{"n": 2}'), "used before with another body"),
        (("nothing",), "no asset with name 'nothing'"),
        (("a", "--uri", "x://b"), "different assets"),
        (("--id", "987654"), "no asset"),
        (("a", "--extra", '{"a": "\\ud800"}'), "surrogate"),
    ]
    for arguments, reason in refused:
        ended = tidegate("assets", "emit", *arguments)
        assert (ended.status, reason in ended.err, ended.err.count("\n")) == (1, True, 1), ended.err


WRONG: list[tuple[tuple[object, ...], str]] = [
    (("assets", "emit"), "name the asset"),
    (("assets", "emit", "a", "--name", "b"), "give the name once"),
    (("assets", "emit", "--id", "x"), "valid integer"),
    (("assets", "emit", "--id", "-1"), "greater than or equal"),
    (("assets", "emit", "a", "--extra", "{"), "no JSON"),
    (("assets", "emit", "a", "--extra", "[]"), "a JSON object is needed"),
    (("assets", "emit", "a", "--extra", '{"a": NaN}'), "no JSON"),
    (("assets", "emit", "a", "--idempotency-key", ""), "1 to 255"),
    (("assets", "emit", "a", "b"), "unexpected extra argument"),
    (("assets", "list", "-o", "yaml"), "'yaml' is not one of"),
    (("assets", "list", "--nothing"), "No such option"),
    (("dags", "trigger"), "Missing argument"),
    (("dags", "trigger", "d", "--conf", "1"), "a JSON object is needed"),
    (("dags", "trigger", "d", "--logical-date", "tomorrow"), "no moment"),
    (("dags", "trigger", "d", "--logical-date", "2026-01-01T00:00:00"), "no offset"),
    (("dags", "pause"), "Missing argument"),
    (("dags", "test", "/no/such/file.py"), "does not exist"),
    (("dags", "test", __file__, "--event", "1"), "a JSON object is needed"),
    (("dags", "test", __file__, "--dags", "/usr"), "is not in /usr"),
    (("triggers", "list", "--status", "odd"), "'odd' is not one of"),
    (("triggerer", "--queues", "a,,b"), "name one queue or more"),
    (("triggerer", "--team-name", " "), "a team needs a name"),
    (("nothing",), "No such command"),
    (("api-server", "--port", "70000"), "less than or equal"),
    (("triggerer", "--capacity", "0"), "greater than or equal"),
]


def test_a_wrong_value_is_told(tidegate: Tidegate) -> None:
    for arguments, reason in WRONG:
        ended = tidegate(*arguments)
        told = " ".join(ended.err.replace("│", " ").split())
        assert (ended.status, reason in told) == (2, True), (arguments, ended.err)


def test_trying_a_file_out(tidegate: Tidegate, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE)
    good = tidegate("dags", "test", file, "one", "--event", '{"n": 1}', "--event", '[{"n": 2}]', "--conf", "{}",
                    "-l", "2026-01-01T00:00:00+00:00")  # fmt: skip
    assert good.status == 0, good.err
    assert "saw {'n': 1}" in good.out
    assert "saw {'n': 2}" in good.out
    failed = tidegate("dags", "test", file, "two")
    assert (failed.status, "on purpose" in failed.out) == (1, True)
    several = tidegate("dags", "test", file)
    assert (several.status, "name one" in several.err) == (1, True)
    file.write_text("import nothing_like_this")
    broken = tidegate("dags", "test", file)
    assert (broken.status, "nothing_like_this" in broken.err) == (1, True)


def test_a_file_of_a_sub_folder_finds_the_modules_of_the_pipelines_folder(tidegate: Tidegate, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    file = tmp_path / "below" / "pipeline.py"
    file.parent.mkdir()
    file.write_text(f"{PIPELINE}\nfrom beside import WORD\n")
    alone = tidegate("dags", "test", file, "one")
    assert (alone.status, "No module named 'beside'" in alone.err) == (1, True)
    found = tidegate("dags", "test", file, "one", "--event", '{"n": 1}', "--dags", tmp_path)
    assert found.status == 0, found.err
    refused = tidegate("dags", "test", file, "one", "--event", '{"asset": "orders", "extra": 5}', "--dags", tmp_path)
    assert (refused.status, "event.extra: must be a mapping" in refused.err) == (1, True), refused.err


def test_without_a_database_one_line_says_so(home: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    environment |= {"PYTHONPATH": str(ROOT), "TIDEGATE_HOME": str(home), "COLUMNS": "80"}
    for extra, reason in (
        ({}, "There is no database"),
        ({"TIDEGATE_DATABASE_URL": "postgresql://u@127.0.0.1:1/x"}, ""),
    ):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "app.main", "dags", "list"],
            env={**environment, **extra}, capture_output=True, text=True, timeout=50, check=False, cwd=home,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_the_page_names_every_command_and_option() -> None:
    kept = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for line in page().splitlines():
        if line.startswith("## "):
            assert line in kept.splitlines(), "run `python -m app.interfaces.cli.describe > docs/cli.md`"
        elif line.startswith("| `"):
            assert line.split("`")[1] in kept


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(tidegate: Tidegate, option: str) -> None:
    for command in ((), ("dags",), ("dags", "test"), ("assets", "emit"), ("triggers", "list"), ("standalone",)):
        ended = tidegate(*command, option)
        assert (ended.status, "Usage" in ended.out) == (0, True)
