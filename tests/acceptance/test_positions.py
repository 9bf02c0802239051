"""A deployment that was down goes on in a Kafka topic exactly where it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.kernel.settings import load_settings
from app.store.embedded import running_dsn
from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(300)]

PIPELINE = """
from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger

for name, reset in (("old", "earliest"), ("new", "latest")):
    queue = "kafka://{bootstrap}/" + {topics!r}[name]
    trigger = MessageQueueTrigger(queue=queue, auto_offset_reset=reset)
    with DAG(name, schedule=Asset(name, watchers=[AssetWatcher(name, trigger)])):
        pass
"""


async def test_a_restart_neither_skips_nor_repeats(
    deploy: Deploy, pipelines: Path, kafka_service: KafkaService, kafka_client: KafkaClient
) -> None:
    """``old`` has read ten messages when everything stops; ``new`` begins at the end of a topic, and was stopped before
    its first message. Both get exactly what was sent meanwhile."""
    topics = {name: await kafka_client.create_topic(partitions=2) for name in ("old", "new")}
    await _send(kafka_client, topics["old"], range(10))
    await _send(kafka_client, topics["new"], range(100, 104))
    (pipelines / "positions.py").write_text(PIPELINE.format(bootstrap=kafka_service.bootstrap, topics=topics))
    there = deploy(pipelines)
    there.wait_for_dags(topics)
    await asyncio.to_thread(there.wait_for_all_runs, "old", 10, timeout=60)
    connection = await asyncpg.connect(running_dsn(load_settings(home=there.home)))

    async def placed() -> bool:
        statement = "SELECT count(*) FROM source_position WHERE source LIKE $1 AND lane <> 'topic'"
        return int(await connection.fetchval(statement, f"%{topics['new']}%")) == 2

    await eventually(placed, what="the first position of a topic without a message")
    await connection.close()
    there.stop()
    await _send(kafka_client, topics["old"], range(10, 15))
    await _send(kafka_client, topics["new"], range(3))
    there.start()
    await asyncio.to_thread(there.wait_for_all_runs, "old", 15, timeout=60)
    await asyncio.to_thread(there.wait_for_all_runs, "new", 3, timeout=60)
    assert _values(there, "old") == list(range(15))
    assert _values(there, "new") == list(range(3))


async def _send(client: KafkaClient, topic: str, numbers: range) -> None:
    await client.send(topic, [str(number).encode() for number in numbers], partitions=2)


def _values(there: Deployment, asset: str) -> list[Any]:
    return sorted(event["extra"]["payload"]["value"] for event in there.client.events(asset))
