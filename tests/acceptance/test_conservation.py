"""Each event ends in exactly one run, in order, whatever the rush."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Barrier

import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Client, Deployment, HttpError

pytestmark = pytest.mark.timeout(240)

PIPELINE = """
from app.sdk import DAG, Asset, task

rush = Asset("rush")

for name, limit in (("many", 16), ("single", 1)):
    with DAG(name, schedule=rush, max_active_runs=limit):

        @task
        def work():
            pass

        work()
"""


def test_a_hundred_events_at_once(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "rush.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["many", "single"])
    barrier = Barrier(25)

    def post(client_number: int) -> list[int]:
        client = Client(there.client.base, password=Deployment.PASSWORD)
        client.get("/api/v2/version")
        barrier.wait(30)
        bodies = [{"name": "rush", "extra": {"client": client_number, "n": n}} for n in range(4)]
        return [client.post("/api/v2/assets/events", body)["id"] for body in bodies]

    with ThreadPoolExecutor(25) as pool:
        ids = [event_id for found in pool.map(post, range(25)) for event_id in found]
    assert len(set(ids)) == 100

    for dag_id in ("many", "single"):
        runs = there.wait_for_runs(dag_id, 100, timeout=120)
        causes = [[event["id"] for event in there.client.causes(dag_id, run["dag_run_id"])] for run in runs]
        assert sorted(event_id for found in causes for event_id in found) == sorted(ids)
        assert all(len(found) == 1 for found in causes)

    single = sorted(there.client.runs("single"), key=lambda run: run["start_date"])
    overlaps = [
        (one["dag_run_id"], next_one["dag_run_id"])
        for one, next_one in pairwise(single)
        if next_one["start_date"] < one["end_date"]
    ]
    assert not overlaps
    with pytest.raises(HttpError) as refusal:
        there.client.get("/api/v2/dags/single/assets/queuedEvents")
    assert refusal.value.status == 404  # nothing waits
