"""The sources of a chaos test: real brokers and a folder, each with the text of its trigger and a way to send."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tests.services.kafka_client import KafkaClient
from tests.services.moto import REGION, SqsAdministration

#: Two consumers a source, without tasks: their runs cost nothing.
PIPELINE = """
from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger
from watchers.files import FileEventTrigger

fed = Asset({kind!r}, watchers=[AssetWatcher({kind!r}, {trigger})])

for number in (1, 2):
    with DAG(f"{kind}_{{number}}", schedule=fed, max_active_runs=64):
        pass
"""


class Source(Protocol):
    """Where messages come from. Its watcher and asset are called ``kind``, its consumers ``<kind>_1`` and ``_2``."""

    kind: str

    def trigger(self) -> str:
        """The source text of its trigger."""
        ...

    async def send(self, values: Sequence[str]) -> None:
        """Send messages; each is told by its value."""
        ...

    async def unacknowledged(self, sent: int) -> int:
        """How many of the ``sent`` messages the source would give again to whoever starts anew."""
        ...


class SqsSource:
    """A queue of a moto server."""

    kind = "sqs"

    def __init__(self, administration: SqsAdministration, queue: str) -> None:
        self._administration = administration
        self._queue = queue

    @classmethod
    async def create(cls, administration: SqsAdministration) -> SqsSource:
        return cls(administration, await administration.create_queue(f"chaos-{uuid4().hex[:8]}"))

    def trigger(self) -> str:
        name = self._queue.rpartition("/")[2]
        return f"MessageQueueTrigger(queue='sqs://{name}', region_name={REGION!r})"

    async def send(self, values: Sequence[str]) -> None:
        await self._administration.send(self._queue, values)

    async def unacknowledged(self, sent: int) -> int:
        return (await self._administration.counts(self._queue)).total


class KafkaSource:
    """A topic of two partitions."""

    kind = "kafka"
    PARTITIONS = 2

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._group = f"group-{topic}"
        self._count = 0

    @classmethod
    async def create(cls, client: KafkaClient) -> KafkaSource:
        return cls(client, await client.create_topic(partitions=cls.PARTITIONS))

    def trigger(self) -> str:
        address = f"kafka://{self._client.bootstrap}/{self._topic}"
        return f"MessageQueueTrigger(queue={address!r}, group_id={self._group!r})"

    async def send(self, values: Sequence[str]) -> None:
        self._count += 1
        lane = self._count % self.PARTITIONS
        await self._client.send_to(self._topic, [(lane, value.encode()) for value in values])

    async def unacknowledged(self, sent: int) -> int:
        committed = await self._client.committed(self._topic, group=self._group)
        return sent - sum(offset or 0 for offset in committed.values())


class FileSource:
    """A folder; a file's name is the value. Files are never acknowledged: identities tell them apart."""

    def __init__(self, folder: Path, *, kind: str = "file") -> None:
        self.kind = kind
        self.folder = folder / "inbox"
        self._drafts = folder / "drafts"
        for each in (self.folder, self._drafts):
            each.mkdir(parents=True)

    def trigger(self) -> str:
        return f"FileEventTrigger({str(self.folder)!r}, debounce=0.02)"

    async def send(self, values: Sequence[str]) -> None:
        for value in values:
            draft = self._drafts / value
            draft.write_text(value)
            draft.rename(self.folder / value)

    async def unacknowledged(self, sent: int) -> int:
        return 0


def write_pipeline(folder: Path, source: Source) -> list[str]:
    """Write the pipeline file of a source; its DAGs."""
    (folder / f"{source.kind}.py").write_text(PIPELINE.format(kind=source.kind, trigger=source.trigger()))
    return [f"{source.kind}_1", f"{source.kind}_2"]
