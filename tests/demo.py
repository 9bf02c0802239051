"""``make demo``: everything on this machine, local SQS and Kafka brokers, and messages that keep the examples busy.

What happens is printed: each message as it is sent, each run as it ends with what its tasks said. Ctrl-C stops it all
and leaves nothing behind (unless ``TIDEGATE_HOME`` names a home to keep).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from tests.acceptance.deployment import ROOT, Client, Deployment, HttpError
from tests.services.kafka import KafkaService, kafka_service
from tests.services.kafka_client import KafkaClient
from tests.services.moto import REGION, MotoServer, SqsAdministration

TOPIC = QUEUE = "orders"
PARTITIONS = 3
#: Pause between two rounds of messages, in seconds.
PAUSE = 1.0
DAGS = ("file_drop", "sqs_orders", "kafka_orders", "kafka_large_orders", "two_assets", "batch_of_clicks", "rest_event")
_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Alan", "Frances")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What runs during the demo."""

    deployment: Deployment
    moto: MotoServer
    kafka: KafkaService
    inbox: Path


@contextmanager
def staged(console: Console) -> Iterator[Stage]:
    """Start brokers and everything of ours; all of it has ended and is removed when the block ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-demo-")))
        # The unprivileged user that runs the database as root must be able to pass.
        folder.chmod(0o711)
        console.print("Starting an SQS server …")
        moto = stack.enter_context(MotoServer())
        kafka = kafka_service()
        stack.callback(kafka.close)
        console.print(f"Starting a Kafka broker ({kafka.title}) …")
        kafka.start()
        asyncio.run(_make_queues(moto, kafka))
        dags = Path(shutil.copytree(ROOT / "examples", folder / "examples"))
        home = Path(os.environ.get("TIDEGATE_HOME") or folder / "home")
        deployment = Deployment(home, dags, environment=_environment(moto, kafka), port=_port())
        deployment.log = folder / "standalone.log"
        console.print("Starting database, dag processor, triggerer, scheduler and API …")
        stack.enter_context(deployment)
        deployment.wait_for_dags(DAGS)
        stage = Stage(deployment=deployment, moto=moto, kafka=kafka, inbox=dags / "inbox")
        _tell_where(console, stage)
        yield stage
        _ignore_signals()
        console.print("Stopping …")


def _ignore_signals() -> None:
    """A second Ctrl-C must not leave something behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(*_: object) -> None:
    _ignore_signals()
    raise KeyboardInterrupt


async def _make_queues(moto: MotoServer, kafka: KafkaService) -> None:
    async with SqsAdministration(moto.url) as administration, KafkaClient.connect(kafka.bootstrap) as client:
        await administration.create_queue(QUEUE)
        await client.create_topic(TOPIC, partitions=PARTITIONS)


def _environment(moto: MotoServer, kafka: KafkaService) -> dict[str, str]:
    return {
        "DEMO_SQS_QUEUE": f"sqs://{QUEUE}",
        "DEMO_KAFKA": f"kafka://{kafka.bootstrap}/{TOPIC}",
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_REGION": REGION,
        "TIDEGATE_POSTGRES_FSYNC": "true",
    }


def _port() -> int | None:
    """The port asked for, else the usual one, else any free one."""
    if asked := os.environ.get("TIDEGATE_API_PORT"):
        return int(asked)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", 8080))
            return 8080
    return None


def _tell_where(console: Console, stage: Stage) -> None:
    console.print(
        f"\n[bold]Tidegate[/bold] is at {stage.deployment.client.base} (user admin, password {Deployment.PASSWORD})\n"
        f"SQS at {stage.moto.url}, queue {QUEUE}; Kafka at {stage.kafka.bootstrap}, topic {TOPIC}\n"
        f"Drop files of your own into {stage.inbox}\n"
        "Ctrl-C stops everything\n",
        soft_wrap=True,
        highlight=False,
    )


class Feeder:
    """Sends a round of messages to every source."""

    def __init__(self, console: Console, stage: Stage, *, sqs: SqsAdministration, kafka: KafkaClient) -> None:
        self._console = console
        self._stage = stage
        self._sqs = sqs
        self._kafka = kafka
        self._number = 0

    async def feed(self) -> None:
        """One message for each, some of them not in every round."""
        self._number += 1
        number = self._number
        order = {"order": number, "customer": random.choice(_CUSTOMERS), "amount": random.randrange(5, 200)}
        await self._kafka.send_to(TOPIC, [(number % PARTITIONS, json.dumps(order).encode())])
        self._told("Kafka", order)
        await self._sqs.send(f"{self._stage.moto.url}/123456789012/{QUEUE}", [json.dumps(order)])
        self._told("SQS", order)
        await self._post("clicks", {"n": number})
        await self._post("left" if number % 2 else "right", {"n": number})
        if number % 5 == 0:
            await self._post("upload", {"file": f"upload-{number}.csv"})
            (self._stage.inbox / f"report-{number}.txt").write_text(f"report {number}\n")
            self._told("file", f"report-{number}.txt")

    async def _post(self, asset: str, extra: dict[str, Any]) -> None:
        client = self._stage.deployment.client
        await asyncio.to_thread(client.post, "/api/v2/assets/events", {"name": asset, "extra": extra})
        self._told("REST", f"{asset} {json.dumps(extra)}")

    def _told(self, source: str, message: object) -> None:
        self._console.print(f"[cyan]→ {source:<6}[/cyan] {escape(str(message))}", soft_wrap=True, highlight=False)


@dataclass(slots=True)
class Watcher:
    """Prints each run once it has ended."""

    console: Console
    client: Client
    seen: set[tuple[str, str]] = field(default_factory=set)
    failed: int = 0

    def look(self) -> None:
        """Print the runs that ended since the last look."""
        found = self.client.get("/api/v2/dags/~/dagRuns", limit=100, order_by="-run_after", state=["success", "failed"])
        for run in reversed(found["dag_runs"]):
            identity = run["dag_id"], run["dag_run_id"]
            if identity not in self.seen:
                self.seen.add(identity)
                self._tell(run)

    def _tell(self, run: dict[str, Any]) -> None:
        dag_id, run_id, state = run["dag_id"], run["dag_run_id"], run["state"]
        self.failed += state == "failed"
        colour = "green" if state == "success" else "red"
        took = f"{run['duration'] * 1000:.0f} ms" if run.get("duration") is not None else ""
        self.console.print(f"[{colour}]✓ {dag_id}[/{colour}] {run_id} {took}", soft_wrap=True, highlight=False)
        with suppress(HttpError):
            for instance in self.client.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]:
                for line in self.client.task_log(dag_id, run_id, instance["task_id"]).splitlines():
                    self.console.print(f"    {escape(line)}", style="dim", soft_wrap=True, highlight=False)


async def play(console: Console, stage: Stage, *, seconds: float | None) -> Watcher:
    """Feed and watch until somebody stops it, or for so many seconds."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    watcher = Watcher(console, stage.deployment.client)
    async with AsyncExitStack() as stack:
        sqs = await stack.enter_async_context(SqsAdministration(stage.moto.url))
        kafka = await stack.enter_async_context(KafkaClient.connect(stage.kafka.bootstrap))
        feeder = Feeder(console, stage, sqs=sqs, kafka=kafka)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not stop.is_set():
                    await feeder.feed()
                    await asyncio.to_thread(watcher.look)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), PAUSE)
    return watcher


def main(arguments: list[str]) -> int:
    """Run the demo; the exit status is 0 unless a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after so long instead of at Ctrl-C")
    chosen = parser.parse_args(arguments)
    console = Console()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        with staged(console) as stage:
            watcher = asyncio.run(play(console, stage, seconds=chosen.seconds))
    except KeyboardInterrupt:
        console.print("Stopped before everything had started")
        return 130
    console.print(f"{len(watcher.seen)} runs ended, {watcher.failed} of them failed. Nothing is left running.")
    return 1 if watcher.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
