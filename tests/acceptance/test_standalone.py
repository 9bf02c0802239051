"""The one command: it starts, says where it is, survives what happens to it, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment

pytestmark = pytest.mark.timeout(240)

PIPELINE = """
from app.sdk import DAG, Asset, task

with DAG("one", schedule=Asset("one")):

    @task
    def work():
        print("worked")

    work()
"""


def test_it_says_where_it_is_and_ends_without_a_trace(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "one.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["one"])
    said = there.log.read_text()
    assert f"http://127.0.0.1:{there.port}" in said
    assert str(pipelines) in said
    everyone = psutil.Process(there.pid).children(recursive=True)
    assert len(everyone) >= 5
    started = time.monotonic()
    assert there.stop(number=signal.SIGINT) == 0
    assert time.monotonic() - started < 15  # 5 s are promised; the rest is room for a busy machine
    _, alive = psutil.wait_procs(everyone, timeout=1)
    assert not alive


def test_a_second_one_on_the_same_home_says_so(deploy: Deploy, pipelines: Path) -> None:
    there = deploy(pipelines)
    done = there.command("standalone", "--port", "0", check=False)
    assert done.returncode == 1
    assert f"pid {there.pid}" in done.stderr
    assert there.healthy()


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


@pytest.mark.parametrize("member", ["scheduler", "triggerer", "dag-processor", "api-server"])
def test_a_killed_member_comes_back(deploy: Deploy, pipelines: Path, member: str) -> None:
    (pipelines / "one.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["one"])
    before = there.members()[member]
    os.kill(before, signal.SIGKILL)
    there.wait_for(lambda: there.members().get(member, before) != before, f"another {member}")
    there.wait_for(there.healthy, "health")
    there.client.post("/api/v2/assets/events", {"name": "one"})
    there.wait_for_runs("one", 1)


def test_its_database_comes_back(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "one.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["one"])
    [postmaster] = [child for child in psutil.Process(there.pid).children() if child.name() == "postgres"]
    members = there.members()
    postmaster.kill()
    there.wait_for(lambda: _postmaster(there) not in (None, postmaster.pid), "another postmaster")
    there.wait_for(there.healthy, "health")
    there.client.post("/api/v2/assets/events", {"name": "one"})
    there.wait_for_runs("one", 1)
    assert there.members() == members


def _postmaster(there: Deployment) -> int | None:
    found = [child.pid for child in psutil.Process(there.pid).children() if child.name() == "postgres"]
    return found[0] if found else None
