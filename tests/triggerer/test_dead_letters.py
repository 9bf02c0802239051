"""What cannot become an event, on a real broker: each kind is kept with its reason and acknowledged."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from providers.memory.client import MemoryClient
from tests.services.fixtures_memory import memory_broker
from tests.services.memory import MemoryBroker
from tests.triggerer.stage import Stage
from tests.waiting import eventually

__all__ = ["memory_broker"]

pytestmark = pytest.mark.timeout(120)
MESSAGES = [b'{"id": 1}', b'{"id": "pw"}', b"7", b"x" * 3000, b"\xff\xfe", b'{"id": 2}']


async def test_letters_are_stored_then_acknowledged(stage: Stage, memory_broker: MemoryBroker) -> None:
    queue = f"letters_{uuid4().hex}"
    world = stage.world
    asset, strict, broken = await world.asset("every"), await world.asset("strict"), await world.asset("broken")
    await world.dag("d", asset)
    trigger = await world.trigger(
        asset,
        classpath="providers.memory.trigger.MemoryTrigger",
        kwargs={"queue_name": queue, "socket": str(memory_broker.path), "wait_seconds": 1.0},
    )
    order = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    await world.watcher(strict, trigger, schema={"properties": {"value": order}})
    await world.watcher(broken, trigger, when="abs(value.id) > `1`")
    client = MemoryClient(memory_broker.path)
    async with stage.running(max_payload_bytes=2048, dead_letter_raw_limit=100):
        await client.publish(queue, MESSAGES)
        assert [payload["value"] for payload in await stage.events(asset, 5)] == [
            {"id": 1}, {"id": "pw"}, 7, "//4=", {"id": 2},
        ]  # fmt: skip

        async def drained() -> bool:
            counts = await client.statistics(queue)
            return (counts.visible, counts.in_flight) == (0, 0)

        await eventually(drained, 60, what="a queue without messages")
        letters = await world.letters(trigger)
    await client.close()
    found = [(row["asset_id"], row["code"], row["reason"]) for row in letters]
    assert sorted(each for each in found if each[1] == "schema") == [
        (strict, "schema", 'payload.value.id: breaks type: "integer" (schema /properties/value/properties/id/type)'),
        (strict, "schema", 'payload.value: breaks type: "object" (schema /properties/value/type)'),
        (strict, "schema", 'payload.value: breaks type: "object" (schema /properties/value/type)'),
    ]
    assert [each for each in found if each[1] == "size"] == [
        (None, "size", "payload: larger than 2048 bytes of JSON text")
    ]
    assert {each[0] for each in found if each[1] == "filter"} == {broken}
    [large] = [row for row in letters if row["code"] == "size"]
    assert (large["raw"], large["raw_size"], large["payload"]) == (b"x" * 100, 3000, None)
    assert all(row["source"] == f"memory:{queue}" and row["key"] and row["created_at"] for row in letters)
    kept = [json.loads(row["payload"])["value"] for row in letters if row["code"] == "schema"]
    assert sorted(map(str, kept)) == ["//4=", "7", "{'id': 'pw'}"]
    assert [payload["value"] for payload in await world.payloads(strict)] == [{"id": 1}, {"id": 2}]
