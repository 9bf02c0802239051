"""The database goes away while messages arrive: they stay with their brokers, and nobody has to help afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
import pytest_asyncio
from cryptography.fernet import Fernet

from app.kernel.settings import load_settings
from app.store.embedded import EmbeddedPostgres
from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment
from tests.acceptance.reported import Report
from tests.acceptance.test_queues import sqs_environment
from tests.services.kafka import KafkaService
from tests.services.kafka_client import KafkaClient
from tests.services.moto import REGION, SqsAdministration
from tests.waiting import eventually

pytestmark = [pytest.mark.sqs, pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

MESSAGES = 10
#: A task that runs through all outages and needs the database in the last one.
LONG = """
import time
from pathlib import Path

from app.sdk import DAG, task

with DAG("long", schedule=None):

    @task
    def begin():
        return "begun"

    @task
    def last(said, ti=None):
        while not Path({gate!r}).exists():
            time.sleep(0.05)
        assert ti.xcom_pull(task_ids="begin") == said

    last(begin())
"""
KINDS = ("sqs", "kafka")


@pytest_asyncio.fixture
async def database_server() -> AsyncIterator[EmbeddedPostgres]:
    """A PostgreSQL that the deployment is only told of."""
    home = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    home.chmod(0o711)
    try:
        async with EmbeddedPostgres(load_settings(home=home, postgres_fsync=False)) as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Outage:
    """A way for the database to be away."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server

    async def begin(self) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        await self.server.restart()


class Shutdown(Outage):
    """An administrator stops the server: sessions are told, connections refused."""

    async def begin(self) -> None:
        await self._stop(signal.SIGINT)

    async def _stop(self, number: signal.Signals) -> None:
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, number)
        await eventually(lambda: self.server.pid is None, what="the end of the server")


class Crash(Shutdown):
    """The server ends without a word, and recovers when it starts."""

    async def begin(self) -> None:
        await self._stop(signal.SIGQUIT)


class Freeze(Outage):
    """The server's machine hangs: connections stay and nothing answers."""

    async def begin(self) -> None:
        postmaster = psutil.Process(self.server.pid)
        self._frozen = [postmaster, *postmaster.children(recursive=True)]
        for process in self._frozen:
            process.suspend()

    async def end(self) -> None:
        for process in self._frozen:
            process.resume()


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Both brokers, and what a deployment has acknowledged to them."""

    sqs: SqsAdministration
    queue: str
    kafka: KafkaClient
    topic: str
    group: str

    def write_pipelines(self, folder: Path, reports: dict[str, Report]) -> None:
        name = self.queue.rpartition("/")[2]
        triggers = {
            "sqs": f"MessageQueueTrigger(queue='sqs://{name}', region_name={REGION!r})",
            "kafka": f"MessageQueueTrigger(queue='kafka://{self.kafka.bootstrap}/{self.topic}', "
            f"group_id={self.group!r})",
        }
        for kind, trigger in triggers.items():
            watchers = f"[AssetWatcher({kind!r}, {trigger})]"
            reports[kind].write_pipeline(folder / f"{kind}.py", asset=kind, dag_id=kind, watchers=watchers)

    async def send(self, values: list[str]) -> None:
        await self.sqs.send(self.queue, values)
        await self.kafka.send(self.topic, [value.encode() for value in values])

    async def unacknowledged(self) -> int:
        return (await self.sqs.counts(self.queue)).total

    async def committed(self) -> int:
        return (await self.kafka.committed(self.topic, group=self.group))[0] or 0


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(8.0, marks=pytest.mark.timeout(400)),
        pytest.param(20.0, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
async def test_messages_wait_for_the_database(
    deploy: Deploy,
    pipelines: Path,
    tmp_path: Path,
    database_server: EmbeddedPostgres,
    sqs_administration: SqsAdministration,
    kafka_service: KafkaService,
    kafka_client: KafkaClient,
    seconds: float,
) -> None:
    """A lease lasts 6 s: each outage outlasts it."""
    topic = await kafka_client.create_topic()
    sources = Sources(
        sqs=sqs_administration,
        queue=await sqs_administration.create_queue(f"outage-{uuid4().hex[:8]}"),
        kafka=kafka_client,
        topic=topic,
        group=f"group-{topic}",
    )
    reports = {kind: Report(tmp_path / f"{kind}.jsonl") for kind in KINDS}
    sources.write_pipelines(pipelines, reports)
    gate = tmp_path / "gate"
    (pipelines / "long.py").write_text(LONG.format(gate=str(gate)))
    there = deploy(
        pipelines,
        **sqs_environment(sqs_administration),
        TIDEGATE_DATABASE_URL=database_server.dsn,
        TIDEGATE_ENCRYPTION_KEY=Fernet.generate_key().decode(),
        TIDEGATE_TOKEN_SECRET="a secret of this test, long enough",
    )
    there.wait_for_dags([*KINDS, "long"])
    there.client.post("/api/v2/dags/long/dagRuns", {"logical_date": None})
    sent = ["before"]
    await sources.send(sent)
    await _until_all_are_runs(there, sources, len(sent))
    there.wait_for(lambda: _task_state(there, "last") == "running", "the long task")
    members = there.members()
    outages = [Shutdown(database_server), Freeze(database_server), Crash(database_server)]
    for outage in outages:
        name = type(outage).__name__
        await outage.begin()
        try:
            now = [f"{name} {number}" for number in range(MESSAGES)]
            await sources.send(now)
            if outage is outages[-1]:
                gate.touch()
            await _assert_nothing_is_acknowledged(sources, seconds, committed=len(sent))
        finally:
            await outage.end()
        sent += now
        back = time.monotonic()
        await _until_all_are_runs(there, sources, len(sent))
        print(f"{name}: all is stored, run and acknowledged {time.monotonic() - back:.1f} s after the database is back")
        for report in reports.values():
            report.assert_each_once(sent)
    for kind in KINDS:
        assert there.client.count("/api/v2/assets/events", asset_id=there.client.asset_id(kind)) == len(sent)
    there.wait_for_runs("long", 1)  # tasks have no retries here: their first attempts have survived
    assert there.members() == members


async def _assert_nothing_is_acknowledged(sources: Sources, seconds: float, *, committed: int) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert await sources.unacknowledged() >= MESSAGES
        assert await sources.committed() == committed
        await asyncio.sleep(0.2)


async def _until_all_are_runs(there: Deployment, sources: Sources, count: int) -> None:
    """Until each message is a successful run, and each broker knows."""
    await asyncio.to_thread(there.wait_for, there.healthy, "health", timeout=90)
    for kind in KINDS:
        await asyncio.to_thread(there.wait_for_all_runs, kind, count, timeout=90)
    await sources.sqs.wait_for_counts(sources.queue, total=0)

    async def copied() -> bool:
        return await sources.committed() == count

    await eventually(copied, what=f"committed offset {count}")


def _task_state(there: Deployment, task_id: str) -> str | None:
    [run] = there.client.runs("long")
    path = f"/api/v2/dags/long/dagRuns/{run['dag_run_id']}/taskInstances/{task_id}"
    return str(there.client.get(path)["state"])
