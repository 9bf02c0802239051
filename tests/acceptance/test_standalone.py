"""The one command: it starts, says where it is, survives what happens to it, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment

pytestmark = pytest.mark.timeout(240)

MEMBERS = ("scheduler", "triggerer", "dag-processor", "api-server")
PIPELINE = """
from app.sdk import DAG, Asset, task

with DAG("one", schedule=Asset("one")):

    @task
    def work():
        print("worked")

    work()
"""


def test_it_says_where_it_is_refuses_a_second_one_and_ends_without_a_trace(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "one.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["one"])
    said = there.log.read_text()
    assert f"http://127.0.0.1:{there.port}" in said
    assert str(pipelines) in said
    second = there.command("standalone", "--port", "0", check=False)
    assert second.returncode == 1
    assert f"pid {there.pid}" in second.stderr
    assert there.healthy()
    everyone = psutil.Process(there.pid).children(recursive=True)
    assert len(everyone) >= 5
    started = time.monotonic()
    assert there.stop(number=signal.SIGINT) == 0
    assert time.monotonic() - started < 15  # 5 s are promised; the rest is room for a busy machine
    _, alive = psutil.wait_procs(everyone, timeout=1)
    assert not alive


def test_it_survives_a_kill_of_everything(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "one.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["one"])
    first = there.client.post("/api/v2/assets/events", {"name": "one"})["id"]
    everyone = [psutil.Process(there.pid), *psutil.Process(there.pid).children(recursive=True)]
    for process in everyone:
        if psutil.pid_exists(process.pid):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(everyone, timeout=10)
    there.stop()
    there.start()
    second = there.client.post("/api/v2/assets/events", {"name": "one"})["id"]
    runs = there.wait_for_runs("one", 2)
    causes = [event["id"] for run in runs for event in there.client.causes("one", run["dag_run_id"])]
    assert sorted(causes) == [first, second]


def test_what_is_killed_comes_back(deploy: Deploy, pipelines: Path) -> None:
    """Each process, then the database: every time it is back without help, and an event still makes a run."""
    (pipelines / "one.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["one"])
    for number, member in enumerate(MEMBERS, 1):
        before = there.members()
        os.kill(before[member], signal.SIGKILL)
        there.wait_for(partial(_is_another, there, member, before[member]), f"another {member}")
        there.wait_for(there.healthy, "health")
        there.client.post("/api/v2/assets/events", {"name": "one"})
        there.wait_for_all_runs("one", number, timeout=60)
        assert {**there.members(), member: 0} == {**before, member: 0}

    members, postmaster = there.members(), _postmaster(there)
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    there.wait_for(lambda: _postmaster(there) not in {None, postmaster}, "another postmaster")
    there.wait_for(there.healthy, "health")
    there.client.post("/api/v2/assets/events", {"name": "one"})
    there.wait_for_all_runs("one", len(MEMBERS) + 1, timeout=60)
    assert there.members() == members


def _is_another(there: Deployment, member: str, before: int) -> bool:
    return there.members().get(member, before) != before


def _postmaster(there: Deployment) -> int | None:
    found = [child.pid for child in psutil.Process(there.pid).children() if child.name() == "postgres"]
    return found[0] if found else None


def test_no_member_outlives_it(deploy: Deploy, pipelines: Path) -> None:
    """Killed alone, it takes its database with it: the members have nothing left to wait for, and end."""
    there = deploy(pipelines)
    everyone = psutil.Process(there.pid).children(recursive=True)
    os.kill(there.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(everyone, timeout=90)
    assert not alive
    there.stop()
