"""What cannot become an event on a real queue: kept, acknowledged, and made an event after all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment, HttpError
from tests.acceptance.test_queues import sqs_environment
from tests.services.moto import REGION, SqsAdministration

pytestmark = [pytest.mark.sqs, pytest.mark.timeout(300)]
LETTERS = "/api/v2/deadLetters"

PIPELINE = """
from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger, task

trigger = MessageQueueTrigger(queue="sqs://{queue}", region_name={region!r}, wait_time_seconds=1)
order = {{"properties": {{"value": {{"type": "object", "required": ["id"]}}}}}}
watchers = {{
    "every": AssetWatcher("w", trigger),
    "orders": AssetWatcher("w", trigger, schema=order),
    "long": AssetWatcher("w", trigger, when="length(value) > `1`"),
}}
for name, watcher in watchers.items():
    with DAG(name, schedule=Asset(name, watchers=[watcher])):

        @task
        def tell(triggering_asset_events):
            for event in next(iter(triggering_asset_events.values())):
                print("saw", event.payload["value"], sorted(event.extra))

        tell()
"""


async def test_letters_of_a_queue_are_kept_and_requeued(
    deploy: Deploy, pipelines: Path, sqs_administration: SqsAdministration
) -> None:
    queue = f"letters-{uuid4().hex[:6]}"
    url = await sqs_administration.create_queue(queue)
    (pipelines / "letters.py").write_text(PIPELINE.format(queue=queue, region=REGION))
    there = deploy(
        pipelines,
        **sqs_environment(sqs_administration),
        TIDEGATE_MAX_PAYLOAD_BYTES="4096",
        TIDEGATE_DEAD_LETTER_RAW_LIMIT="1000",
    )
    there.wait_for_dags(["every", "orders", "long"])

    await sqs_administration.send(url, ['{"id": 1}', '{"id": 2, "more": 1}', '{"name": "no id"}', "5", "x" * 10_000])
    # Four are events of the asset that asks nothing, whatever others make of them.
    await _until(there, lambda: len(there.client.events("every")) == 4, "four events")
    await _until(there, lambda: there.client.count(LETTERS) == 4, "the letters")
    await sqs_administration.wait_for_counts(url, total=0)

    letters = {(each["code"], each["asset_name"]): each for each in there.client.pages(LETTERS, "dead_letters")}
    refused = list(there.client.pages(LETTERS, "dead_letters", asset_name="orders"))
    assert set(letters) == {("schema", "orders"), ("filter", "long"), ("size", None)}
    assert sorted(each["reason"] for each in refused) == [
        'payload.value: breaks type: "object" (schema /properties/value/type)',
        'payload.value: lacks "id" (schema /properties/value/required)',
    ]
    assert all(each["source"] == url and each["key"] for each in letters.values())
    whole = there.client.get(f"{LETTERS}/{refused[0]['id']}")
    assert whole["raw_text"] in {"5", '{"name": "no id"}'}
    assert [event["extra"]["payload"]["value"] for event in there.client.events("long")] == [{"id": 2, "more": 1}]

    await _requeue(there, refused, letters["size", None]["id"])
    await asyncio.to_thread(there.wait_for_all_runs, "orders", 5, timeout=90)
    await asyncio.to_thread(there.wait_for_all_runs, "every", 5, timeout=90)
    said = [there.client.task_log("orders", run["dag_run_id"], "tell") for run in there.client.runs("orders")]
    for value in ("{'id': 10}", "{'id': 11}", "{'id': 12}"):
        assert sum(f"saw {value} ['from_trigger', 'payload']" in text for text in said) == 1, said
    ended = there.command("dead-letters", "delete", "--code", "filter", "-o", "json").stdout
    assert [row["outcome"] for row in json.loads(ended)] == ["deleted"]
    await sqs_administration.delete_queue(url)


async def _requeue(there: Deployment, refused: list[Any], oversize: int) -> None:
    """Each refused order with another payload, and the over-size message by what is to stand for it."""
    for number, letter in enumerate(refused, 10):
        path = f"{LETTERS}/{letter['id']}/requeue"
        with pytest.raises(HttpError) as still:
            there.client.post(path, {})
        assert still.value.status == 422
        done = there.client.post(path, {"payload": {"value": {"id": number}}})
        assert (done["created"], len(done["event_ids"])) == (1, 1)
    with pytest.raises(HttpError) as cut:
        there.client.post(f"{LETTERS}/{oversize}/requeue", {})
    assert (cut.value.status, "Only 1000 of 10000 bytes" in cut.value.body) == (409, True)
    with pytest.raises(HttpError) as large:
        there.client.post(f"{LETTERS}/{oversize}/requeue", {"payload": "x" * 5_000})
    assert (large.value.status, "5002 bytes of JSON text; the limit is 4096" in large.value.body) == (413, True)
    done = there.client.post(f"{LETTERS}/{oversize}/requeue", {"payload": {"value": {"id": 12}}})
    # To the third asset it has too few members.
    assert (done["created"], done["dead_letters"]) == (2, [])


async def _until(there: Deployment, condition: Any, what: str) -> None:
    await asyncio.to_thread(there.wait_for, condition, what, timeout=90)
