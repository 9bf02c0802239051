"""An SQS endpoint over HTTP: a moto server as a process, and what tests do at it past the product.

It becomes slow with many messages in a queue: keep queues shallow (hundreds).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

REPOSITORY = Path(__file__).resolve().parents[2]
REGION = "eu-west-1"
ACCOUNT = "123456789012"


class MotoServer:
    """One server process on a free port of the loopback; it ends with the standard input we hold."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The endpoint's URL."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.services.moto_process"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip().isdigit(), "the moto server did not start"
        self.port = int(line)

    def stop(self) -> None:
        """End it; its queues end with it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait(timeout=30)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Messages that wait and messages handed out but not deleted."""

    visible: int
    in_flight: int

    @property
    def total(self) -> int:
        """All that are not deleted."""
        return self.visible + self.in_flight


class SqsAdministration:
    """Requests to an SQS endpoint in its JSON protocol, without the client that the product uses."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Perform ``operation``; raises AssertionError with the service's words if it refuses."""
        assert self._session is not None
        credential = f"Credential=test/20260101/{REGION}/sqs/aws4_request, SignedHeaders=host, Signature=none"
        headers = {
            "X-Amz-Target": f"AmazonSQS.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": f"AWS4-HMAC-SHA256 {credential}",
        }
        body = json.dumps(parameters)
        async with self._session.post(self.endpoint, data=body, headers=headers) as response:
            text = await response.text()
            assert response.status == 200, f"{operation}: {response.status} {text}"
            answer: dict[str, Any] = json.loads(text) if text else {}
            return answer

    async def create_queue(self, name: str, *, visibility: int = 10) -> str:
        """Create a queue (FIFO if the name ends so); returns its URL."""
        attributes = {"VisibilityTimeout": str(visibility)}
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        answer = await self.call("CreateQueue", QueueName=name, Attributes=attributes)
        return str(answer["QueueUrl"])

    async def delete_queue(self, url: str) -> None:
        """Delete a queue with all it holds."""
        await self.call("DeleteQueue", QueueUrl=url)

    async def send(
        self, url: str, bodies: Sequence[str], *, lanes: Sequence[str] | None = None, **more: Any
    ) -> list[str]:
        """Send in order, ten a call; returns message ids. ``lanes`` are the message groups of a FIFO queue."""
        entries: list[dict[str, Any]] = [
            {"Id": str(number), "MessageBody": body, **more} for number, body in enumerate(bodies)
        ]
        if url.endswith(".fifo"):
            for number, entry in enumerate(entries):
                entry["MessageGroupId"] = lanes[number] if lanes else f"alone-{uuid.uuid4().hex}"
                entry["MessageDeduplicationId"] = uuid.uuid4().hex
        identifiers: list[str] = []
        for start in range(0, len(entries), 10):
            answer = await self.call("SendMessageBatch", QueueUrl=url, Entries=entries[start : start + 10])
            assert not answer.get("Failed"), answer
            identifiers += [entry["MessageId"] for entry in answer["Successful"]]
        return identifiers

    async def counts(self, url: str) -> QueueCounts:
        """How many messages the queue has."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = (await self.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names))["Attributes"]
        return QueueCounts(visible=int(attributes[names[0]]), in_flight=int(attributes[names[1]]))

    async def wait_for_counts(self, url: str, *, total: int, within: float = 45.0) -> QueueCounts:
        """The counts, once the queue holds ``total`` messages."""
        end = asyncio.get_running_loop().time() + within
        counts = await self.counts(url)
        while counts.total != total:
            assert asyncio.get_running_loop().time() < end, f"{counts}, not {total} in all, within {within} s"
            await asyncio.sleep(0.05)
            counts = await self.counts(url)
        return counts
