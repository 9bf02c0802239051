"""`tidegate triggers lint`: what it prints, and its exit statuses."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Tidegate

BAD = "import time\n\n\nclass Feed(BaseTrigger):\n    async def run(self):\n        time.sleep(1)\n        yield 1\n"


def test_findings_are_lines_with_a_place(tidegate: Tidegate, tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.py", tmp_path / "deep" / "good.py"
    good.parent.mkdir()
    bad.write_text(BAD)
    good.write_text(BAD.replace("sleep(1)", "time()"))
    hidden = tmp_path / ".venv" / "bad.py"
    hidden.parent.mkdir()
    hidden.write_text(BAD)

    ended = tidegate("triggers", "lint", tmp_path, bad)
    assert (ended.status, ended.err) == (1, "")
    assert ended.out.splitlines() == [
        f"{bad}:6:9 TG101 time.sleep() blocks the event loop in Feed.run(): use `await asyncio.sleep(…)`"
    ]
    (row,) = tidegate("triggers", "lint", "--format", "json", tmp_path).rows
    assert row | {"message": ""} == {
        "file": str(bad), "line": 6, "column": 9, "code": "TG101", "message": "", "trigger": "Feed",
    }  # fmt: skip
    clean = tidegate("triggers", "lint", good)
    assert (clean.status, clean.out, clean.err) == (0, "", "")


def test_what_cannot_be_read_is_named_and_the_rest_is_checked(tidegate: Tidegate, tmp_path: Path) -> None:
    bad, broken, missing = tmp_path / "bad.py", tmp_path / "broken.py", tmp_path / "missing.py"
    bad.write_text(BAD)
    broken.write_text("class (:\n")
    ended = tidegate("triggers", "lint", broken, missing, bad)
    assert ended.status == 2
    assert f"{bad}:6:9 TG101" in ended.out
    assert f"error: {broken}: line 1" in ended.err
    assert f"error: {missing}: No such file" in ended.err


def test_our_own_triggers_are_clean(tidegate: Tidegate) -> None:
    root = Path(__file__).resolve().parents[2]
    ended = tidegate("triggers", "lint", root / "providers", root / "watchers", root / "examples", root / "app")
    assert (ended.status, ended.out) == (0, "")
