"""Wrong settings end a command with one line that names the remedy, and never with the password."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Tidegate

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2"

MALFORMED = [
    ("foo", "begin with postgresql://"),
    (f"foo://u:{SECRET}@h/x", "begin with postgresql://"),
    (f"mysql://u:{SECRET}@h/x", "begin with postgresql://"),
    (f"postgresql://u:{SECRET}@h:notaport/x", "port must be a number"),
    (f"postgresql://u:a/{SECRET}@h/x", "port must be a number"),
    (f"postgresql://u:{SECRET}@h:70000/x", "port must be a number"),
    (f"postgresql://u:{SECRET}@[h/x", "it is no URL"),
    (f"postgresql://u:{SECRET}@h/x?sslmode=bogus", "sslmode must be one of"),
]


@pytest.mark.parametrize("command", [("db", "check"), ("config", "list"), ("standalone",), ("dags", "list")])
def test_what_is_no_url_is_told(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    for url, reason in MALFORMED:
        monkeypatch.setenv("TIDEGATE_DATABASE_URL", url)
        ended = tidegate(*command)
        assert (ended.status, ended.err.count("\n")) == (1, 1), (url, ended.err)
        assert "TIDEGATE_DATABASE_URL" in ended.err
        assert reason in ended.err
        assert SECRET not in ended.err


@pytest.mark.parametrize("command", [("db", "check"), ("db", "migrate"), ("standalone", "--port", "0"), ("scheduler",)])
def test_what_the_server_refuses_is_told(
    tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch, database_url: str, command: tuple[str, ...]
) -> None:
    parts = urlsplit(database_url)
    place = f"{parts.hostname}:{parts.port}"
    for url, reason in (
        (f"postgresql://nobody_here:{SECRET}@{place}{parts.path}", "nobody_here"),
        (f"postgresql://{parts.username}:{SECRET}@{place}{parts.path}", "password authentication failed"),
        (database_url.rpartition("/")[0] + "/no_such_database", "no_such_database"),
        (f"{database_url}?no_such_parameter=1", "no_such_parameter"),
    ):
        monkeypatch.setenv("TIDEGATE_DATABASE_URL", url)
        ended = tidegate(*command)
        assert (ended.status, ended.err.count("\n")) == (1, 1), (url, ended.err)
        assert "Correct TIDEGATE_DATABASE_URL" in ended.err
        assert reason in ended.err
        assert SECRET not in ended.err
        assert str(parts.password) not in ended.err


def test_a_database_that_is_away_is_told(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"postgresql://u:{SECRET}@127.0.0.1:1/x")
    ended = tidegate("db", "check")
    assert (ended.status, ended.err.count("\n")) == (1, 1), ended.err
    assert "The database cannot be reached" in ended.err
    assert SECRET not in ended.err


def test_durations_are_finite(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (
        ("TIDEGATE_TASK_KILL_GRACE", "inf"),
        ("TIDEGATE_DAG_PARSE_TIMEOUT", "1e400"),
        ("TIDEGATE_DEDUP_RETENTION_DAYS", "nan"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(variable, value)
            ended = tidegate("config", "list")
            assert (ended.status, ended.err.count("\n")) == (1, 1), ended.err
            assert f"{variable}: Input should be a finite number" in ended.err


def test_a_variable_that_is_no_setting_is_told(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PARALELLISM", "3")
    ended = tidegate("config", "list", "-o", "json")
    assert ended.rows
    assert "no setting TIDEGATE_PARALELLISM; did you mean TIDEGATE_PARALLELISM?" in ended.err


def test_an_option_is_checked_like_its_variable(tidegate: Tidegate) -> None:
    ended = tidegate("standalone", "--host", "")
    assert (ended.status, "TIDEGATE_API_HOST" in ended.err, ended.err.count("\n")) == (1, True, 1), ended.err


def _standalone(home: Path, **extra: str) -> tuple[subprocess.CompletedProcess[str], float]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    environment |= {"PYTHONPATH": str(ROOT), "TIDEGATE_HOME": str(home), **extra}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "app.main", "standalone"],
        env=environment, capture_output=True, text=True, timeout=50, check=False, cwd=home,
    )  # fmt: skip
    return done, time.monotonic() - started


def test_standalone_tells_why_it_cannot_listen_before_it_starts_anything(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = (
            ({"TIDEGATE_API_PORT": port}, f"Another program listens on 127.0.0.1:{port}"),
            ({"TIDEGATE_API_HOST": "nosuch.host.invalid"}, "cannot listen on nosuch.host.invalid:8080: "),
            ({"TIDEGATE_API_HOST": "nosuch.host.invalid", "TIDEGATE_API_PORT": "0"}, "cannot listen on nosuch"),
            ({"TIDEGATE_API_HOST": "192.0.2.1", "TIDEGATE_API_PORT": "0"}, "cannot listen on 192.0.2.1:0: "),
        )
        for extra, reason in cases:
            done, _ = _standalone(home, **extra)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
            assert reason in done.stderr
            assert done.stdout == ""
    assert not (home / "postgres").exists()


def test_a_pipelines_folder_that_cannot_be_made_is_told(home: Path) -> None:
    (home / "file").write_text("")
    for folder in (home / "file", home / "file" / "below"):
        done, _ = _standalone(home, TIDEGATE_DAGS_FOLDER=str(folder), TIDEGATE_API_PORT="0")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert f"The pipelines folder {folder} cannot be made or read" in done.stderr
    assert not (home / "postgres").exists()
