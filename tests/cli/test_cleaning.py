"""`tidegate db clean`: what it asks, tells, refuses and removes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.kernel.attempt_logs import append_line, attempt_log_path
from tests.cli.conftest import Tidegate
from tests.factories import make_asset, make_dag
from tests.test_retention import old_run
from tests.triggerer.world import World

InWorld = Callable[..., Any]


async def old_things(world: World) -> None:
    """One old run, and one old event that nobody wants."""
    async with world.database.hot() as hot:
        await make_dag(hot, "d")
        asset_id = await make_asset(hot, "a")
    await old_run(world.database, "d", "old")
    await world.value(
        "WITH b AS (INSERT INTO event_body (extra) VALUES ('{}') RETURNING id) "
        "INSERT INTO asset_event (asset_id, body_id, origin, \"timestamp\") SELECT $1, id, 'rest', "
        "now() - interval '40 days' FROM b",
        asset_id,
    )


async def left(world: World) -> tuple[int, int]:
    """Runs and events."""
    return await world.value("SELECT count(*) FROM dag_run"), await world.value("SELECT count(*) FROM asset_event")


def counts(rows: list[dict[str, Any]], word: str) -> dict[str, int]:
    return {row["kind"]: row[word] for row in rows if row[word]}


def test_a_dry_run_tells_and_removes_nothing(tidegate: Tidegate, in_world: InWorld) -> None:
    in_world(old_things)
    ended = tidegate("db", "clean", "--before", "30d", "--dry-run", "-o", "json")
    assert ended.status == 0
    assert counts(ended.rows, "removable") == {"runs": 1, "events": 1}
    assert in_world(left) == (1, 1)


def test_what_was_named_goes(tidegate: Tidegate, in_world: InWorld, home: Path) -> None:
    in_world(old_things)
    path = attempt_log_path(home, dag_id="d", run_id="gone", task_id="t", map_index=-1, attempt=1)
    append_line(path, "x", level="info", logger="x")
    date = (datetime.now(UTC) - timedelta(days=30)).date().isoformat()
    ended = tidegate("db", "clean", "--before", date, "--tables", "events,logs", "--yes", "-o", "json")
    assert counts(ended.rows, "removed") == {"events": 1}
    assert in_world(left) == (1, 0)
    assert path.exists()
    ended = tidegate("db", "clean", "--before", "0m", "--tables", "runs", "--tables", "logs", "-y", "--batch-size", 10)
    assert ended.status == 0
    assert "runs" in ended.out
    assert in_world(left) == (0, 0)
    assert not path.exists()


def test_without_yes_it_asks(tidegate: Tidegate, in_world: InWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    in_world(old_things)
    for answer, remaining in (("n\n", (1, 1)), ("", (1, 1)), ("y\n", (0, 0))):
        monkeypatch.setattr("sys.stdin", _Typed(answer))
        ended = tidegate("db", "clean", "--before", "30d")
        assert (ended.status == 0) == (answer == "y\n")
        assert in_world(left) == remaining


class _Typed:
    """Standard input with one answer."""

    def __init__(self, text: str) -> None:
        self._text = text

    def readline(self, *_: object) -> str:
        text, self._text = self._text, ""
        return text

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--before", "yesterday"], "no moment"),
        (["--before", "2026-01-01T00:00:00"], "no offset"),
        (["--before", "2999-01-01", "--yes"], "future"),
        (["--before", "99999999999d", "--yes"], "too long ago"),
        (["--before", "1d", "--tables", "triggers"], "no kind"),
        (["--before", "1d", "--batch-size", "1"], "10"),
        ([], "--before"),
    ],
)
def test_wrong_values_are_refused(tidegate: Tidegate, arguments: list[str], said: str) -> None:
    ended = tidegate("db", "clean", *arguments)
    assert ended.status == 2
    assert said in ended.err


def test_ctrl_c_says_how_to_go_on(tidegate: Tidegate, in_world: InWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    in_world(old_things)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.interfaces.cli.cleaning._Progress.told", interrupted)
    ended = tidegate("db", "clean", "--before", "30d", "--yes")
    assert ended.status == 130
    assert "go on" in ended.err
    monkeypatch.undo()
