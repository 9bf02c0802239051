"""Every message of a real queue becomes one event and one run, and the queue is empty afterwards."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment
from tests.acceptance.reported import Report
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.services.moto import REGION, SqsAdministration
from tests.waiting import eventually

PARTITIONS = 6
#: Messages sent at once.
CHUNK = 50


@pytest.mark.sqs
@pytest.mark.timeout(400)
async def test_each_message_of_sqs(
    deploy: Deploy, pipelines: Path, tmp_path: Path, sqs_administration: SqsAdministration
) -> None:
    url = await sqs_administration.create_queue(f"many-{uuid4().hex[:8]}")
    report = Report(tmp_path / "report.jsonl")
    trigger = f"MessageQueueTrigger(queue='sqs://{url.rpartition('/')[2]}', region_name={REGION!r})"
    report.write_pipeline(
        pipelines / "many.py", asset="many", dag_id="many", watchers=f"[AssetWatcher('queue', {trigger})]", limit=64
    )
    there = deploy(pipelines, **sqs_environment(sqs_administration))
    there.wait_for_dags(["many"])
    started = time.monotonic()
    sent = [f"message {number}" for number in range(500)]
    for start in range(0, len(sent), CHUNK):
        await sqs_administration.send(url, sent[start : start + CHUNK])
    await asyncio.to_thread(there.wait_for_all_runs, "many", len(sent), timeout=300)
    print(f"sqs: {len(sent)} messages, events and runs in {time.monotonic() - started:.1f} s")

    values = [event["extra"]["payload"]["value"] for event in there.client.events("many")]
    assert Counter(values) == Counter(sent)
    report.assert_each_once(sent)
    await sqs_administration.wait_for_counts(url, total=0)
    await sqs_administration.delete_queue(url)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
@pytest.mark.parametrize(
    "total",
    [
        pytest.param(600, marks=pytest.mark.timeout(400)),
        pytest.param(5000, marks=[pytest.mark.slow, pytest.mark.timeout(1500)]),
    ],
)
async def test_each_message_of_kafka_over_restarts(
    deploy: Deploy,
    pipelines: Path,
    tmp_path: Path,
    kafka_service: KafkaService,
    kafka_client: KafkaClient,
    total: int,
) -> None:
    """The triggerer is killed a third of the way and stopped cleanly at two thirds, each while messages flow."""
    topic = await kafka_client.create_topic(partitions=PARTITIONS)
    group = f"group-{topic}"
    report = Report(tmp_path / "report.jsonl")
    trigger = f"MessageQueueTrigger(queue='kafka://{kafka_service.bootstrap}/{topic}', group_id={group!r})"
    report.write_pipeline(
        pipelines / "many.py", asset="many", dag_id="many", watchers=f"[AssetWatcher('topic', {trigger})]", limit=64
    )
    there = deploy(pipelines)
    there.wait_for_dags(["many"])
    started = time.monotonic()
    sent = [f"message {number}" for number in range(total)]
    ended = await _send_with_restarts(there, kafka_client, topic, sent)
    await asyncio.to_thread(there.wait_for_all_runs, "many", total, timeout=300 + total / 5)
    print(f"{kafka_service.title}: {total} messages, events and runs in {time.monotonic() - started:.1f} s")

    assert there.members()["triggerer"] not in ended
    values = [event["extra"]["payload"]["value"] for event in there.client.events("many")]
    assert Counter(values) == Counter(sent)
    report.assert_each_once(sent)
    ends = await kafka_client.end_offsets(topic)
    assert sum(ends.values()) == total

    async def copied() -> bool:
        return await kafka_client.committed(topic, group=group) == ends

    await eventually(copied, what="committed offsets at the ends")


async def _send_with_restarts(there: Deployment, client: KafkaClient, topic: str, sent: list[str]) -> list[int]:
    """Send all in three parts; the end of the first two meets a signal. Returns the pids that got one."""
    ended: list[int] = []
    owners: set[int] = set()
    third = -(-len(sent) // 3)
    for part, number in zip(range(0, len(sent), third), (signal.SIGKILL, signal.SIGTERM, None), strict=True):
        values = [value.encode() for value in sent[part : part + third]]
        chunks = [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]
        for chunk in chunks[:-1]:
            await client.send(topic, chunk, partitions=PARTITIONS)
        if number is not None:
            # The one before must be at work, or it would be the same restart twice.
            owners.add(await asyncio.to_thread(there.wait_for, lambda: _owner(there, owners), "a working triggerer"))
        await client.send(topic, chunks[-1], partitions=PARTITIONS)
        if number is not None:
            ended.append(there.send_signal("triggerer", number))
    return ended


def _owner(there: Deployment, before: set[int]) -> int:
    """Id of the job that runs the watcher; 0 if none does, or one of those before."""
    trigger = there.client.triggers().get("topic")
    if trigger is None or trigger["status"] != "running" or trigger["triggerer_id"] in before:
        return 0
    return int(trigger["triggerer_id"])


def sqs_environment(administration: SqsAdministration) -> dict[str, str]:
    """What a deployment must know to reach the test's endpoint."""
    return {
        "AWS_ENDPOINT_URL": administration.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
    }
