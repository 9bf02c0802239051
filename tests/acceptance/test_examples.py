"""Every example does what it says, on a whole deployment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.conftest import EXAMPLES, Deploy
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.services.moto import REGION, SqsAdministration

pytestmark = [pytest.mark.timeout(240)]

COVERED = {"01_file_drop", "02_sqs", "03_kafka", "04_two_assets", "05_batch", "06_rest_event"}


def test_each_example_has_a_test() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == COVERED


def test_what_needs_no_broker(deploy: Deploy, examples: Path) -> None:
    there = deploy(examples)
    there.wait_for_dags(["file_drop", "two_assets", "batch_of_clicks", "rest_event", "after_report"])
    assert not there.client.get("/api/v2/importErrors")["import_errors"]

    (examples / "inbox" / "report-42.txt").write_text("anything")
    [run] = there.wait_for_runs("file_drop", 1)
    assert "received report-42.txt (8 bytes)" in there.client.task_log("file_drop", run["dag_run_id"], "print_name")

    for name in ("left", "left", "right", "right"):
        there.client.post("/api/v2/assets/events", {"name": name, "extra": {"from": name}})
    [run] = there.wait_for_runs("two_assets", 1)
    assert [event["name"] for event in there.client.causes("two_assets", run["dag_run_id"])] == [
        "left",
        "left",
        "right",
    ]

    for number in range(12):
        there.client.post("/api/v2/assets/events", {"name": "clicks", "extra": {"n": number}})
    runs = there.wait_for_runs("batch_of_clicks", 2)
    sizes = [len(there.client.causes("batch_of_clicks", run["dag_run_id"])) for run in runs]
    assert sizes == [10, 2]

    key = {"Idempotency-Key": "upload-42"}
    body = {"name": "upload", "extra": {"file": "a.csv"}}
    first, again = (there.client.post("/api/v2/assets/events", body, headers=key)["id"] for _ in range(2))
    assert first == again
    there.wait_for_runs("rest_event", 1)
    [run] = there.wait_for_runs("after_report", 1)
    assert "publishing the report on a.csv" in there.client.task_log("after_report", run["dag_run_id"], "publish")


@pytest.mark.sqs
async def test_sqs(deploy: Deploy, examples: Path, sqs_administration: SqsAdministration) -> None:
    url = await sqs_administration.create_queue("orders-example")
    there = deploy(
        examples,
        DEMO_SQS_QUEUE="sqs://orders-example",
        AWS_ENDPOINT_URL=sqs_administration.endpoint,
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_REGION=REGION,
    )
    there.wait_for_dags(["sqs_orders"])
    await sqs_administration.send(url, [f"number {number}" for number in range(3)])
    runs = there.wait_for_runs("sqs_orders", 3)
    said = [there.client.task_log("sqs_orders", run["dag_run_id"], "handle") for run in runs]
    assert all(sum(f"order number {number} " in text for text in said) == 1 for number in range(3))
    assert (await sqs_administration.wait_for_counts(url, total=0)).total == 0


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
async def test_kafka(deploy: Deploy, examples: Path, kafka_service: KafkaService, kafka_client: KafkaClient) -> None:
    await kafka_client.create_topic("orders-example", partitions=2)
    there = deploy(examples, DEMO_KAFKA=f"kafka://{kafka_service.bootstrap}/orders-example")
    there.wait_for_dags(["kafka_orders", "kafka_large_orders"])
    await kafka_client.send("orders-example", [json.dumps({"amount": amount}).encode() for amount in (5, 500)])
    there.wait_for_runs("kafka_orders", 2)
    [run] = there.wait_for_runs("kafka_large_orders", 1)
    assert "'amount': 500" in there.client.task_log("kafka_large_orders", run["dag_run_id"], "review")
