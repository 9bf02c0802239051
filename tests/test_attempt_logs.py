from __future__ import annotations

import json
from pathlib import Path

from app.kernel.attempt_logs import append_line


def test_a_line_begins_on_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run_id=r" / "attempt=1.log"
    append_line(path, "ü\nmore", level="error", logger="x")
    with path.open("a") as file:
        file.write("cut o")
    append_line(path, "second", level="error", logger="x")
    first, cut, second = path.read_text().splitlines()
    assert cut == "cut o"
    assert json.loads(first)["event"] == "ü\nmore"
    assert json.loads(second).keys() == {"timestamp", "level", "logger", "event"}
