"""Other ends: the runner alone, all at once, an API server before its answer, a dag processor in the middle of a file,
a warm parent, single sessions, a network that falls silent."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import psutil
import pytest

from app.kernel.crash_points import CrashPoint
from tests.acceptance.deployment import Client, HttpError
from tests.chaos import figures
from tests.chaos.conftest import MakeFleet
from tests.chaos.fleet import Fleet
from tests.chaos.flow import Flow, end_all
from tests.chaos.ledger import Ledger
from tests.chaos.nodes import Node
from tests.chaos.recorded import Recording
from tests.services.proxy import Mode, Proxy
from tests.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

#: Requests whose server is killed around their commit.
KEYS = 6
RUNNER = "app.processes.triggerer.runner_child"
WARM_PARENT = "app.processes.executor.warm_parent"
TASKS = """
import time

from app.sdk import DAG, Asset, task

with DAG("tasks", schedule=Asset("jobs"), max_active_runs=8):

    @task(retries=20, retry_delay=0.1)
    def work():
        time.sleep(0.3)

    work()
"""


async def test_a_watcher_survives_every_end(make_fleet: MakeFleet, tmp_path: Path, chance: Random) -> None:
    """Runner alone, both, two triggerers at once, one while it starts, all, and its sessions one by one."""
    recording = Recording(tmp_path / "recorded", count=2)
    async with make_fleet() as fleet, Ledger.open(fleet) as ledger, AsyncExitStack() as stack:
        dag_ids = recording.write_pipeline(fleet.pipelines)
        await fleet.start(dag_processor=1, scheduler=1, triggerer=3)
        await fleet.until_dags(dag_ids)
        flows = [
            await stack.enter_async_context(Flow.open(source, ledger, Random(chance.random()), gap=0.1))
            for source in recording.sources.values()
        ]
        deaths: dict[int, float] = {}
        ways = [
            _runner_alone,
            _runner_then_parent,
            _two_at_once,
            _while_starting,
            _all,
            _sessions,
            _just_taken_over,
            _while_it_shares,
        ]
        for way in ways:
            await ledger.until_stored("watched1", await flows[0].send_one())
            fleet.note(f"--- {way.__name__}")
            at = await way(fleet, deaths)
            new = [await ledger.first_stored(flow.source.kind, sent_after=at) - at for flow in flows]
            figures.record("hostile ends", f"{way.__name__.strip('_')}, to a new message", f"{max(new):.2f} s")
            for node in fleet.of_kind("triggerer"):
                if not node.is_running:
                    node.start()
            await fleet.until_up()
        await end_all(flows, ledger, dag_ids)
        statuses = await fleet.fetch("SELECT status FROM trigger")
        assert {row["status"] for row in statuses} == {"running"}
    assert recording.kills == 0


async def _runner_alone(fleet: Fleet, deaths: dict[int, float]) -> float:
    node = await fleet.owner("watched1")
    for runner in _below(node, RUNNER):
        runner.kill()
    return time.monotonic()


async def _runner_then_parent(fleet: Fleet, deaths: dict[int, float]) -> float:
    node = await fleet.owner("watched1")
    for runner in _below(node, RUNNER):
        runner.kill()
    return node.kill()


async def _two_at_once(fleet: Fleet, deaths: dict[int, float]) -> float:
    owner = await fleet.owner("watched1")
    other = next(node for node in fleet.of_kind("triggerer") if node is not owner)
    other.kill()
    return owner.kill()


async def _while_starting(fleet: Fleet, deaths: dict[int, float]) -> float:
    """One that comes up beside the others is killed before it can be of use, again and again; then the owner."""
    owner = await fleet.owner("watched1")
    other = next(node for node in fleet.of_kind("triggerer") if node is not owner)
    other.kill()
    for pause in (0.3, 0.9, 1.5):
        other.start()
        await asyncio.sleep(pause)
        other.kill()
    return owner.kill()


async def _all(fleet: Fleet, deaths: dict[int, float]) -> float:
    """Measured from when the first is started again."""
    for node in fleet.of_kind("triggerer"):
        node.kill()
    fleet.of_kind("triggerer")[0].start()
    return time.monotonic()


async def _sessions(fleet: Fleet, deaths: dict[int, float]) -> float:
    """Every database session of the owner ends, some time after the other."""
    owner = await fleet.owner("watched1")
    for _ in range(5):
        await fleet.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", fleet.role(owner)
        )
        await asyncio.sleep(0.2)
    return time.monotonic()


async def _just_taken_over(fleet: Fleet, deaths: dict[int, float]) -> float:
    """Whoever takes over is killed as soon as it has."""
    first = await fleet.owner("watched1")
    first.kill()
    second = await fleet.owner("watched1", but=[first])
    return second.kill()


async def _while_it_shares(fleet: Fleet, deaths: dict[int, float]) -> float:
    """The only one that is left is killed while it hands one of its watchers to another that came up."""
    last, *others = fleet.of_kind("triggerer")
    for node in others:
        node.kill()
    for watcher in ("watched1", "watched2"):
        await fleet.owner(watcher, but=others)
    armed = fleet.points.arm(CrashPoint.RELEASE_UNCOMMITTED, victim=last.pid)
    others[0].start()
    fired = await armed.wait(within=90)
    last.reap()
    return fired.at


async def test_a_triggerer_is_cut_off_from_the_database(
    make_fleet: MakeFleet, tmp_path: Path, database_url: str, chance: Random
) -> None:
    """For 20 s its connections carry nothing, both ways; then they do again."""
    recording = Recording(tmp_path / "recorded", count=2)
    parts = urlsplit(database_url)
    async with Proxy(("127.0.0.1", parts.port or 5432)) as proxy, make_fleet() as fleet:
        dag_ids = recording.write_pipeline(fleet.pipelines)
        around = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
        await fleet.add("triggerer", dsn=around)
        await fleet.start(dag_processor=1, scheduler=1)
        await fleet.until_dags(dag_ids)
        [cut_off] = fleet.of_kind("triggerer")
        await fleet.until_up(*await fleet.add("triggerer"))
        async with Ledger.open(fleet) as ledger, AsyncExitStack() as stack:
            flows = [
                await stack.enter_async_context(Flow.open(source, ledger, Random(chance.random()), gap=0.1))
                for source in recording.sources.values()
            ]
            for flow in flows:
                await ledger.until_stored(flow.source.kind, await flow.send_one())
            before = await fleet.value("SELECT id FROM job WHERE pid = $1 AND ended_at IS NULL", cut_off.pid)
            await proxy.set_mode(Mode.MUTE)
            fleet.note("the network falls silent")
            at = time.monotonic()
            new = [await ledger.first_stored(flow.source.kind, sent_after=at + 0.5) - at for flow in flows]
            figures.record("partition", "network silent, to a new message of each watcher", figures.spread(new))
            await asyncio.sleep(max(at + 20 - time.monotonic(), 0))
            await proxy.set_mode(Mode.PASS)
            fleet.note("the network is back")

            async def leased_anew() -> bool:
                return bool(
                    await fleet.value(
                        "SELECT 1 FROM job WHERE pid = $1 AND ended_at IS NULL AND id > $2", cut_off.pid, before
                    )
                )

            await eventually(leased_anew, 60, what="a new lease of the one that was cut off")
            for flow in flows:
                await ledger.until_stored(flow.source.kind, await flow.send_one())
            await end_all(flows, ledger, dag_ids)
    assert recording.kills == 0
    assert max(new) <= 12


async def test_an_api_server_dies_before_it_answers(make_fleet: MakeFleet, chance: Random) -> None:
    """The caller asks again with the same key, at another server: one event."""
    async with make_fleet() as fleet:
        (fleet.pipelines / "posted.py").write_text(
            "from app.sdk import DAG, Asset\nwith DAG('posted', schedule=Asset('posted')):\n    pass\n"
        )
        await fleet.start(dag_processor=1, scheduler=1, api_server=2)
        await fleet.until_dags(["posted"])
        one, other = fleet.of_kind("api-server")
        clients = [fleet.clients[one.name], fleet.clients[other.name]]
        for client in clients:
            await eventually(lambda client=client: _answers(client), 60, what="an API server")
        for number in range(KEYS):
            headers = {"Idempotency-Key": f"key {number}"}
            body = {"name": "posted", "extra": {"value": f"posted-{number}"}}
            point = chance.choice([CrashPoint.POST_UNCOMMITTED, CrashPoint.POSTED])
            armed = fleet.points.arm(point, victim=one.pid)
            with pytest.raises((OSError, http.client.HTTPException, HttpError)):
                await asyncio.to_thread(clients[0].call, "POST", "/api/v2/assets/events", body, headers=headers)
            await armed.wait()
            one.reap()
            first = await asyncio.to_thread(clients[1].call, "POST", "/api/v2/assets/events", body, headers=headers)
            again = await asyncio.to_thread(clients[1].call, "POST", "/api/v2/assets/events", body, headers=headers)
            assert first["id"] == again["id"]
            one.start()
            await eventually(lambda: _answers(clients[0]), 60, what="the API server again")
        ledger = Ledger(fleet)
        for number in range(KEYS):
            ledger.note_sent("posted", f"posted-{number}")
        await ledger.assert_each_event_once("posted")
        await ledger.assert_each_run_once("posted", "posted")
    figures.record("hostile ends", f"API server killed around its commit {KEYS} times", "one event a key")


async def test_a_dag_processor_dies_in_a_file(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """In the middle of its transaction or after it: whoever comes next finds one of two states, and finishes."""
    recording = Recording(tmp_path / "recorded", count=2)
    async with make_fleet() as fleet:
        armed = fleet.points.arm(CrashPoint.SYNC_UNCOMMITTED)
        dag_ids = recording.write_pipeline(fleet.pipelines)
        await fleet.start(scheduler=1, triggerer=1)
        [processor] = await fleet.add("dag-processor")
        await armed.wait(within=60)
        processor.reap()
        assert await fleet.value("SELECT count(*) FROM dag") == 0
        armed = fleet.points.arm(CrashPoint.SYNCED)
        processor.start()
        await armed.wait(within=60)
        processor.reap()
        await fleet.until_dags(dag_ids)
        before = await fleet.fetch("SELECT id, epoch, start_count, created_date FROM trigger ORDER BY id")
        processor.start()
        await fleet.until_up(processor)
        async with Ledger.open(fleet) as ledger:
            for name, source in recording.sources.items():
                ledger.note_sent(name, f"{name}-1")
                await source.send([f"{name}-1"])
            await ledger.until_all_stored()
        assert await fleet.fetch("SELECT id, epoch, start_count, created_date FROM trigger ORDER BY id") == before
        assert len(before) == 2


async def test_a_warm_parent_dies_with_its_tasks(make_fleet: MakeFleet, chance: Random) -> None:
    """What ran is retried, what had not started costs no try; every event has its one run, which succeeds."""
    async with make_fleet() as fleet:
        (fleet.pipelines / "tasks.py").write_text(TASKS)
        await fleet.start(dag_processor=1, scheduler=2, api_server=1)
        await fleet.until_dags(["tasks"])
        [client] = fleet.clients.values()
        await eventually(lambda: _answers(client), 60, what="an API server")
        ledger = Ledger(fleet)
        killed = 0
        for number in range(40):
            ledger.note_sent("jobs", f"jobs-{number}")
            body = {"name": "jobs", "extra": {"value": f"jobs-{number}"}}
            await asyncio.to_thread(client.post, "/api/v2/assets/events", body)
            await asyncio.sleep(chance.uniform(0, 0.2))
            if number % 8 == 7:
                parents = [each for node in fleet.of_kind("scheduler") for each in _below(node, WARM_PARENT)]
                assert parents
                os.kill(chance.choice(parents).pid, signal.SIGKILL)
                killed += 1
        await ledger.assert_each_event_once("jobs")
        await ledger.assert_each_run_once("jobs", "tasks", within=120)
    figures.record("hostile ends", f"{killed} warm parents killed", "40 events, 40 successful runs")


def _below(node: Node, module: str) -> list[psutil.Process]:
    """Child processes that run this module."""
    found = []
    for child in node.children():
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def _answers(client: Client) -> bool:
    try:
        return bool(client.get("/api/v2/version")) and bool(client.token())
    except (OSError, HttpError, http.client.HTTPException):
        return False
