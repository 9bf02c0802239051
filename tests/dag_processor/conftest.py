from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.kernel.settings import Settings, load_settings
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.dag_processor.running import PipelinesFolder


@pytest_asyncio.fixture
async def folder(home: Path, database_url: str) -> AsyncIterator[PipelinesFolder]:
    """An empty pipelines folder beside a database; the processor is started by the test."""
    settings = load_settings(
        home=home, database_url=database_url, dag_retire_grace=0.2, file_still_seconds=0.1, dag_scan_interval=30
    )
    settings.pipelines_folder.mkdir()
    async with await Database.connect(database_url) as database, Notifier.open(database) as notifier:
        yield PipelinesFolder(settings=settings, database=database, notifier=notifier)


@pytest.fixture
def settings(folder: PipelinesFolder) -> Settings:
    return folder.settings
