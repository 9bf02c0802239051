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


KEYS = 40


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


def test_the_same_keys_from_two_clients(deploy: Deploy, pipelines: Path) -> None:
    """Two clients, each at an API server of its own, post the same requests at the same moments, in opposite order."""
    (pipelines / "rush.py").write_text(PIPELINE)
    there = deploy(pipelines)
    there.wait_for_dags(["many", "single"])
    barrier = Barrier(2)
    with there.another_api_server() as second:

        def post(client: Client, numbers: list[int]) -> dict[int, int]:
            barrier.wait(30)
            found = {}
            for number in numbers:
                body = {"name": "rush", "extra": {"n": number}}
                key = {"Idempotency-Key": f"key {number}"}
                found[number] = client.post("/api/v2/assets/events", body, headers=key)["id"]
            return found

        numbers = list(range(KEYS))
        # The first half meets head to head, the second half crosses.
        orders = (numbers, numbers[: KEYS // 2] + numbers[KEYS // 2 :][::-1])
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(post, (there.client, second), orders)
        assert one == other
        assert len(set(one.values())) == KEYS
        with pytest.raises(HttpError) as refusal:
            second.post("/api/v2/assets/events", {"name": "rush"}, headers={"Idempotency-Key": "key 0"})
        assert refusal.value.status == 409
    for dag_id in ("many", "single"):
        runs = there.wait_for_runs(dag_id, KEYS, timeout=120)
        causes = [event["id"] for run in runs for event in there.client.causes(dag_id, run["dag_run_id"])]
        assert sorted(causes) == sorted(one.values())


FRESH = """
from app.sdk import DAG, Asset, task

with DAG({name!r}, schedule=Asset({name!r})):

    @task
    def work():
        pass

    work()
"""
FRESH_DAGS = 20


def test_the_first_event_after_a_dag_is_listed_counts(deploy: Deploy, pipelines: Path) -> None:
    there = deploy(pipelines)
    waiting = {f"fresh_{number}" for number in range(FRESH_DAGS)}
    for name in sorted(waiting):
        (pipelines / f"{name}.py").write_text(FRESH.format(name=name))

    def post_to_listed() -> bool:
        listed = {dag["dag_id"] for dag in there.client.pages("/api/v2/dags", "dags")}
        for name in sorted(waiting & listed):
            there.client.post("/api/v2/assets/events", {"name": name})
            waiting.remove(name)
        return not waiting

    there.wait_for(post_to_listed, "all DAGs", timeout=90)
    for number in range(FRESH_DAGS):
        there.wait_for_all_runs(f"fresh_{number}", 1, timeout=60)
