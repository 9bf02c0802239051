"""Old files of a home: what goes, and what is still needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from app.kernel.attempt_logs import append_line, attempt_log_path
from app.kernel.settings import Settings, with_overrides
from app.processes.home_retention import FileAges, ages_of, clean_home
from app.store.database import Database
from tests.databases import database, fetch
from tests.factories import make_dag
from tests.test_retention import old_run

__all__ = ["database"]

DAY = 86_400.0
NOW = 2_000_000_000.0


def log(home: Path, run_id: str, *, age: float, dag_id: str = "d", attempt: int = 1) -> Path:
    """The log of an attempt, last written ``age`` days ago."""
    path = attempt_log_path(home, dag_id=dag_id, run_id=run_id, task_id="t/1", map_index=-1, attempt=attempt)
    append_line(path, "hello", level="info", logger="x")
    return aged(path, age=age)


def aged(path: Path, *, age: float) -> Path:
    for each in [path, *path.parents[:2]]:
        os.utime(each, (NOW - age * DAY, NOW - age * DAY))
    return path


async def make(database: Database, *run_ids: str) -> None:
    async with database.hot() as hot:
        await make_dag(hot, "d")
    for run_id in run_ids:
        await old_run(database, "d", run_id, state=run_id.partition(" ")[0])


async def test_logs_of_ended_runs_go_and_those_of_others_stay(database: Database, home: Path) -> None:
    await make(database, "success 1", "queued 1", "success 2")
    old, waiting, recent = (log(home, name, age=40) for name in ("success 1", "queued 1", "success 2"))
    aged(log(home, "success 2", age=40, attempt=2), age=3)
    unknown = log(home, "never heard of", age=40, dag_id="../x")

    ages = FileAges(logs=NOW - 30 * DAY, orphans=None)
    assert await clean_home(database, home, ages=ages, dry_run=True) == 2
    assert old.exists()
    assert await clean_home(database, home, ages=ages) == 2
    assert [path.exists() for path in (old, unknown, waiting, recent)] == [False, False, True, True]
    assert not unknown.parents[2].exists(), "the folder of a DAG without logs"
    assert await clean_home(database, home, ages=ages) == 0


async def test_without_an_age_of_their_own_logs_go_with_the_run(database: Database, home: Path) -> None:
    await make(database, "success 1")
    kept, gone = log(home, "success 1", age=40), log(home, "removed", age=40)
    assert await clean_home(database, home, ages=FileAges(logs=None, orphans=NOW - 30 * DAY)) == 1
    assert (kept.exists(), gone.exists()) == (True, False)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ({}, FileAges(logs=None, orphans=None)),
        ({"retention_logs_days": 2}, FileAges(logs=NOW - 2 * DAY, orphans=None)),
        ({"retention_runs_days": 3}, FileAges(logs=None, orphans=NOW - 3 * DAY)),
    ],
)
def test_ages_are_those_of_the_settings(settings: Settings, days: dict[str, Any], expected: FileAges) -> None:
    assert ages_of(with_overrides(settings, **days), now=NOW) == expected


async def test_logs_of_triggers_that_are_gone_go(database: Database, home: Path) -> None:
    [row] = await fetch(
        database,
        "INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status) "
        "VALUES ('asset', 'i', 'x.Y', '', true, 'unassigned') RETURNING id",
    )
    folder = home / "logs" / "triggers"
    paths = [folder / name for name in (f"{row['id']}.log", f"{row['id'] + 1}.log.1", "runner-installed.log")]
    for path in paths:
        append_line(path, "x", level="info", logger="x")
        os.utime(path, (NOW, NOW))
    assert await clean_home(database, home, ages=FileAges(logs=NOW + 1, orphans=None)) == 2
    assert [path.exists() for path in paths] == [True, False, False]


async def test_code_that_is_not_stored_goes_unless_it_is_new(database: Database, home: Path) -> None:
    await fetch(database, "INSERT INTO bundle VALUES ('stored', 'x.py')")
    bundles = home / "bundles"
    for name in ("stored", "gone", "fresh", ".gone.12.abcd", ".leaving-other"):
        (bundles / name).mkdir(parents=True)
        (bundles / name / "x.py").write_text("x")
        if name != "fresh":
            os.utime(bundles / name, (1, 1))
    nothing = FileAges(logs=None, orphans=None)
    assert await clean_home(database, home, ages=nothing, dry_run=True) == 3
    assert await clean_home(database, home, ages=nothing) == 3
    assert sorted(path.name for path in bundles.iterdir()) == ["fresh", "stored"]


async def test_a_home_without_anything_is_fine(database: Database, home: Path) -> None:
    assert await clean_home(database, home, ages=FileAges(logs=NOW, orphans=NOW)) == 0
