from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from app.sdk.task_log import MAX_EVENT, task_log


def lines(path: Path) -> list[Any]:
    found: list[Any] = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append(line)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dag_id=d" / "attempt=1.log"


def test_everything_lands_in_the_log(path: Path) -> None:
    streams = (sys.stdout, sys.stderr)
    with task_log(path):
        print("printed", end="")
        print(" in parts\nsecond line")
        print("complaint", file=sys.stderr)
        logging.getLogger("my.code").warning("logged %s", "value")
        logging.getLogger("my.code").debug("too quiet")
        try:
            raise ValueError("boom")
        except ValueError:
            logging.getLogger("my.code").exception("failed")
        subprocess.run(["sh", "-c", "echo from a child; echo and its errors >&2"], check=True)
        os.write(1, b"raw\xff\n")
        print("unfinished", end="")
    assert (sys.stdout, sys.stderr) == streams
    found = lines(path)
    assert [(line["level"], line["logger"], line["event"]) for line in found[:4]] == [
        ("info", "task.stdout", "printed in parts"),
        ("info", "task.stdout", "second line"),
        ("error", "task.stderr", "complaint"),
        ("warning", "my.code", "logged value"),
    ]
    assert found[4]["event"].startswith("failed\nTraceback")
    assert "ValueError: boom" in found[4]["event"]
    assert found[5:8] == [b"from a child", b"and its errors", b"raw\xff"]
    assert found[8]["event"] == "unfinished"
    assert datetime.fromisoformat(found[0]["timestamp"]).tzinfo is not None


def test_odd_output(path: Path) -> None:
    with task_log(path):
        print("\ud800 NUL \0 é")
        print("x" * (3 * MAX_EVENT))
        logging.getLogger().error("%d", "no number")
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.flush()
        with pytest.raises(TypeError):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
    found = lines(path)
    assert found[0]["event"] == "\ud800 NUL \0 é"
    assert len(found[1]["event"]) <= MAX_EVENT + 100
    assert any(isinstance(line, dict) and "arguments that do not fit" in line["event"] for line in found)
    assert b"bytes" in found


def test_appends_and_restores(path: Path) -> None:
    handlers = logging.getLogger().handlers[:]
    for word in ("one", "two"):
        with contextlib.suppress(RuntimeError), task_log(path):
            print(word)
            raise RuntimeError
    assert [line["event"] for line in lines(path)] == ["one", "two"]
    assert logging.getLogger().handlers == handlers


def test_passwords_in_uris_are_masked(path: Path) -> None:
    with task_log(path):
        print("connecting to s3://user:hunter2@host/x")
    assert lines(path)[0]["event"] == "connecting to s3://user:***@host/x"


def test_without_a_path_nothing_changes() -> None:
    stdout = sys.stdout
    with task_log(""):
        assert sys.stdout is stdout


def test_warnings_are_logged(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with task_log(path):
            warnings.warn("careful", stacklevel=1)
    assert "careful" in lines(path)[0]["event"]


def test_a_log_ends_at_its_limit_and_says_what_is_missing(path: Path) -> None:
    limit = 5_000
    with task_log(path, limit=limit):
        for number in range(100):
            print(f"line {number} of many")
        logging.getLogger("x").error("y" * 10_000)
        print("short")
    found = lines(path)
    told = [line for line in found if line["logger"] == "tidegate.log"]
    assert [line["level"] for line in told] == ["warning", "warning"]
    assert "limit of 5,000 bytes" in told[0]["event"]
    kept = [line["event"] for line in found if line["logger"] == "task.stdout"]
    assert kept == [f"line {number} of many" for number in range(len(kept))]
    assert told[1] is found[-1]
    assert f"{102 - len(kept)} lines" in told[1]["event"]
    assert path.stat().st_size <= limit + 1_000


def test_a_log_within_its_limit_says_nothing_of_it(path: Path) -> None:
    with task_log(path, limit=5_000):
        print("x")
    assert [line["event"] for line in lines(path)] == ["x"]
