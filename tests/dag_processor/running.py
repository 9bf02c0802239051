"""A pipelines folder with a dag processor on it."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from app.kernel.settings import Settings
from app.processes.dag_processor.processor import DagProcessor
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.declared import Declared
from tests.waiting import eventually


@dataclass
class Progress:
    """Counts instead of telling peers."""

    count: int = 0

    def progress(self) -> None:
        self.count += 1


@dataclass
class PipelinesFolder:
    settings: Settings
    database: Database
    notifier: Notifier
    job: Progress = field(default_factory=Progress)

    @property
    def path(self) -> Path:
        return self.settings.pipelines_folder

    @property
    def state(self) -> Declared:
        return Declared(self.database)

    def write(self, path: str, source: str) -> None:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(source))

    def remove(self, path: str) -> None:
        (self.path / path).unlink()

    @asynccontextmanager
    async def processed(self, **changes: Any) -> AsyncIterator[DagProcessor]:
        """A processor runs on the folder while the block does."""
        settings = self.settings.model_copy(update=changes)
        processor = DagProcessor(
            self.database, self.notifier, settings, job=self.job, encrypt=lambda kwargs: f"sealed {kwargs}".encode()
        )
        running = asyncio.create_task(processor.run())
        try:
            yield processor
            assert not running.done(), running.exception()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def dags(self) -> dict[str, int]:
        """Version numbers of the active DAGs."""
        rows = await self.state.rows(
            "SELECT d.dag_id, v.version_number FROM dag d JOIN dag_version v ON v.id = current_version_id "
            "WHERE d.is_active"
        )
        return {row.dag_id: row.version_number for row in rows}

    async def errors(self) -> dict[str, str]:
        rows = await self.state.rows("SELECT filename, message FROM import_error")
        return {row.filename: row.message for row in rows}

    async def until_dags(self, **versions: int) -> None:
        """Wait until exactly these DAGs are active, in these versions."""

        async def there() -> bool:
            found = await self.dags()
            assert found == versions, (found, await self.errors())
            return True

        await eventually(there, 60)

    async def until_errors(self, *files: str) -> dict[str, str]:
        """Wait until exactly these files have an import error; the messages."""

        async def there() -> dict[str, str] | bool:
            found = await self.errors()
            assert set(found) == set(files), found
            return found or True

        found = await eventually(there, 60)
        return found if isinstance(found, dict) else {}

    async def parses(self) -> Sequence[Any]:
        return await self.state.rows("SELECT path, last_parsed_at FROM dag_file ORDER BY path")


def dag(dag_id: str, *, body: str = "pass", before: str = "") -> str:
    """A pipeline file with one DAG."""
    return f"from app.sdk import DAG, Asset\n{before}\nwith DAG({dag_id!r}):\n    {body}\n"


def watching(dag_id: str, *watchers: str, before: str = "") -> str:
    """A pipeline file with one DAG scheduled on one asset that has the watchers (Python expressions)."""
    return (
        "from datetime import timedelta\nfrom app.sdk import DAG, Asset\nfrom watchers import *\n"
        f"{before}\n"
        f"with DAG({dag_id!r}, schedule=[Asset('one', watchers=[{', '.join(watchers)}])]):\n    pass\n"
    )


def as_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
