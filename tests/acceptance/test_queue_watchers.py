"""Watchers of SQS queues: shared pollers, strict routing, odd bodies, pause and unpause."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Client, Deployment
from tests.acceptance.test_queues import sqs_environment
from tests.services.moto import REGION, SqsAdministration
from tests.services.proxy import HttpProxy

pytestmark = [pytest.mark.sqs, pytest.mark.timeout(300)]

PIPELINE = """
from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger

for name, queue in {queues!r}.items():
    trigger = MessageQueueTrigger(queue="sqs://" + queue, region_name={region!r}, wait_time_seconds=1)
    with DAG(name, schedule=Asset(name, watchers=[AssetWatcher("watcher of " + name, trigger)])):
        pass
"""
SHARED = [f"shared_{letter}" for letter in "abcde"]
#: Names of which one is the beginning of another.
ROUTED = ["q1", "q10", "q1-a", "q1-a-b", "q"]
BODIES = ["null", '""', "0", "false", "{}", "[]", "  ", '{"a": 1}', "end"]
#: How long requests are counted beyond the time that the messages take.
IDLE_SECONDS = 15.0
VALUES: list[Any] = [None, "", 0, False, {}, [], "  ", {"a": 1}, "end"]


async def test_watchers_share_route_and_pause(
    deploy: Deploy, pipelines: Path, sqs_administration: SqsAdministration
) -> None:
    prefix = uuid4().hex[:6]
    names = ["shared", "bodies", "paused", *ROUTED]
    urls = {name: await sqs_administration.create_queue(f"{name}-{prefix}") for name in names}
    queues = {name: f"{name}-{prefix}" for name in names}
    shared = dict.fromkeys(SHARED, queues["shared"])
    _write(pipelines / "shared.py", shared)
    _write(pipelines / "others.py", {name: queues[name] for name in names[1:]})
    there = deploy(pipelines, **sqs_environment(sqs_administration))
    there.wait_for_dags([*SHARED, *names[1:]])

    for name in ROUTED:
        await sqs_administration.send(urls[name], [f"{name} {number}" for number in range(3)])
    await sqs_administration.send(urls["bodies"], BODIES)
    await sqs_administration.send(urls["shared"], [str(number) for number in range(20)])
    for name in ROUTED:
        assert sorted(await _values(there, name, 3)) == [f"{name} {number}" for number in range(3)]
    assert sorted(map(json.dumps, await _values(there, "bodies", 9))) == sorted(map(json.dumps, VALUES))
    for name in SHARED:
        assert Counter(await _values(there, name, 20)) == Counter(range(20))
    [trigger] = {one["id"]: one for one in _triggers(there, SHARED)}.values()
    assert trigger["events"] == 100 or trigger["events"] == 20
    assert _restarts(there.client) == 0

    # One consumer less: the others go on, by the same poller.
    del shared["shared_c"]
    _write(pipelines / "shared.py", shared)
    there.wait_for(lambda: len(_triggers(there, ["shared_c"])) == 0, "the end of the watcher", timeout=90)
    await sqs_administration.send(urls["shared"], ["later"])
    for name in shared:
        assert (await _values(there, name, 21))[-1] == "later"
    assert {one["id"] for one in _triggers(there, list(shared))} == {trigger["id"]}

    await _pause_and_unpause(there, sqs_administration, urls["paused"])
    for url in urls.values():
        await sqs_administration.wait_for_counts(url, total=0)
        await sqs_administration.delete_queue(url)


async def test_five_assets_on_a_queue_cost_what_one_costs(
    deploy: Deploy, pipelines: Path, sqs_administration: SqsAdministration
) -> None:
    """Twenty messages to a queue that five assets watch, and twenty to one that a single asset watches: the requests
    that either receives are counted between deployment and server, over the same time."""
    prefix = uuid4().hex[:6]
    names = {"one": f"one-{prefix}", "five": f"five-{prefix}"}
    urls = {name: await sqs_administration.create_queue(queue) for name, queue in names.items()}
    shared = dict.fromkeys(SHARED, names["five"])
    _write(pipelines / "queues.py", {"single": names["one"], **shared})
    port = int(sqs_administration.endpoint.rpartition(":")[2])
    async with HttpProxy(("127.0.0.1", port)) as proxy:
        environment = sqs_environment(sqs_administration) | {"AWS_ENDPOINT_URL": proxy.url}
        there = await asyncio.to_thread(deploy, pipelines, **environment)
        await asyncio.to_thread(there.wait_for_dags, ["single", *SHARED])
        await _polled(proxy, urls)
        began = {name: _receives(proxy, url) for name, url in urls.items()}
        for number in range(20):
            for url in urls.values():
                await sqs_administration.send(url, [str(number)])
        for asset in ("single", *SHARED):
            assert Counter(await _values(there, asset, 20)) == Counter(range(20))
        await asyncio.sleep(IDLE_SECONDS)
        calls = {name: _receives(proxy, url) - began[name] for name, url in urls.items()}
        print(f"\nreceive calls: {calls['five']} for five assets, {calls['one']} for one")
        assert calls["five"] <= 1.5 * calls["one"] + 2

        del shared["shared_d"]
        _write(pipelines / "queues.py", {"single": names["one"], **shared})
        await asyncio.to_thread(
            there.wait_for, lambda: not _triggers(there, ["shared_d"]), "the end of the watcher", timeout=90
        )
        await sqs_administration.send(urls["five"], ["later"])
        for asset in shared:
            assert (await _values(there, asset, 21))[-1] == "later"
        for url in urls.values():
            await sqs_administration.wait_for_counts(url, total=0)
        await asyncio.to_thread(there.stop)
    for url in urls.values():
        await sqs_administration.delete_queue(url)


def _receives(proxy: HttpProxy, url: str) -> int:
    """Requests for messages of a queue so far."""
    name = url.rpartition("/")[2]
    asked = [
        json.loads(request.body)
        for request in proxy.requests
        if request.headers.get("x-amz-target") == "AmazonSQS.ReceiveMessage"
    ]
    return sum(request["QueueUrl"].rpartition("/")[2] == name for request in asked)


async def _polled(proxy: HttpProxy, urls: dict[str, str]) -> None:
    async with asyncio.timeout(60):
        while not all(_receives(proxy, url) for url in urls.values()):
            await asyncio.sleep(0.1)


async def _pause_and_unpause(there: Deployment, sqs: SqsAdministration, url: str) -> None:
    """While the only consumer is paused its messages stay in the broker."""
    there.client.call("PATCH", "/api/v2/dags/paused", {"is_paused": True})
    there.wait_for(lambda: _triggers(there, ["paused"])[0]["status"] == "unassigned", "a watcher that has stopped")
    await sqs.send(url, ["one", "two", "three"])
    await asyncio.sleep(3)
    assert (await sqs.counts(url)).total == 3
    assert there.client.events("paused") == []
    there.client.call("PATCH", "/api/v2/dags/paused", {"is_paused": False})
    assert sorted(await _values(there, "paused", 3)) == ["one", "three", "two"]
    await asyncio.to_thread(there.wait_for_all_runs, "paused", 3, timeout=60)


def _write(file: Path, queues: dict[str, str]) -> None:
    file.write_text(PIPELINE.format(queues=queues, region=REGION))


async def _values(there: Deployment, asset: str, count: int) -> list[Any]:
    """The values of an asset's events once there are ``count``."""
    await asyncio.to_thread(
        there.wait_for, lambda: len(there.client.events(asset)) >= count, f"{count} events of {asset}"
    )
    found = there.client.events(asset)
    assert len(found) == count
    return [event["extra"]["payload"]["value"] for event in found]


def _triggers(there: Deployment, assets: list[str]) -> list[Any]:
    """The triggers with a watcher for one of these assets."""
    found = there.client.pages("/api/v2/triggers", "triggers")
    return [one for one in found if any(watcher["asset_name"] in assets for watcher in one["watchers"])]


def _restarts(client: Client) -> int:
    return sum(one["restarts"] for one in client.pages("/api/v2/triggers", "triggers"))
