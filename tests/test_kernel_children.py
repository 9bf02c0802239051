"""Children: no secrets in their environment, our code importable, and no life after their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from app.kernel.children import code_root, foreign_command, python_command, scrubbed_environment
from tests.waiting import eventually_sync


def test_environment_is_scrubbed() -> None:
    kept = {
        "PATH": "/bin",
        "HOME": "/h",
        "LANG": "C",
        "AWS_PROFILE": "p",
        "TIDEGATE_CONN_X": "c",
        "TIDEGATE_VAR_Y": "v",
    }
    hidden = {
        "TIDEGATE_DATABASE_URL": "s", "tidegate_encryption_key": "s", "TIDEGATE_TOKEN_SECRET": "s",
        "TIDEGATE_ADMIN_PASSWORD": "s", "PGPASSWORD": "s", "PGHOST": "s",
    }  # fmt: skip
    environment = scrubbed_environment({"EXTRA": "1"}, source=kept | hidden | {"PYTHONPATH": "/user"})
    assert kept.items() <= environment.items()
    assert not hidden.keys() & environment.keys()
    assert environment["PYTHONPATH"] == f"{code_root()}{os.pathsep}/user"
    assert environment["EXTRA"] == "1"


def test_our_code_wins_over_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')")
    done = subprocess.run(
        python_command("app.kernel.settings"),
        cwd=tmp_path, env=scrubbed_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "TIDEGATE_HOME" in done.stdout


PARENT = """
import subprocess, sys, time
from pathlib import Path
from app.kernel.children import foreign_command, python_command, scrubbed_environment
child = "from app.kernel.children import die_with_parent as d;d(); import time; print('up', flush=True); time.sleep(99)"
python = subprocess.Popen([sys.executable, "-c", child], env=scrubbed_environment(), stdout=subprocess.PIPE, text=True)
assert python.stdout.readline() == "up\\n"
foreign = subprocess.Popen(foreign_command(Path("/bin/sleep"), "600"))
print(python.pid, foreign.pid, flush=True)
time.sleep(600)
"""


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_children_die_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(_alive(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
    for pid in pids:
        eventually_sync(lambda pid=pid: not _alive(pid))


def test_foreign_program_keeps_its_exit_code_and_user() -> None:
    assert subprocess.run(foreign_command(Path("/bin/sh"), "-c", "exit 7"), check=False).returncode == 7
    if os.geteuid() == 0:
        told = subprocess.run(
            foreign_command(Path("/usr/bin/id"), "-u", user=(65534, 65534)), capture_output=True, check=True
        )
        assert told.stdout.strip() == b"65534"


def test_orphaned_before_it_could_ask_ends_at_once() -> None:
    environment = scrubbed_environment({"TIDEGATE_PARENT_PID": "1"})
    program = "from app.kernel.children import die_with_parent; die_with_parent(); print('still here')"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
