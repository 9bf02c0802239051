"""A password that a pipeline uses is nowhere in the clear: not at rest, not in the API, not in any log."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from app.kernel.settings import load_settings
from app.store.embedded import running_dsn
from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment

pytestmark = pytest.mark.timeout(240)

SECRET = "sentinel-7f3a9c-password"
PIPELINE = """
import asyncio
import os

from app.sdk import DAG, Asset, AssetWatcher, task
from watchers import BaseEventTrigger, TriggerEvent

SECRET = os.environ["PIPELINE_SECRET"]


class Careless(BaseEventTrigger):
    def __init__(self, *, login, nested, fails):
        self.kwargs = {"login": login, "nested": nested, "fails": fails}

    def serialize(self):
        return f"{__name__}.Careless", self.kwargs

    async def run(self):
        self.log.info("logging in as %s", self.kwargs["login"])
        print("printed", self.kwargs["login"])
        os.write(2, f"written {self.kwargs['login']}\\n".encode())
        if self.kwargs["fails"]:
            raise RuntimeError(f"refused: {self.kwargs['nested']}")
        yield TriggerEvent("in")
        self.status.failed(RuntimeError(f"lost the connection of {self.kwargs['login']}"))
        yield TriggerEvent(float("nan"), raw=b"not a number")
        await asyncio.Event().wait()


watchers = [
    AssetWatcher(name, Careless(login=SECRET, nested=[{"password": SECRET}], fails=fails))
    for name, fails in (("works", False), ("fails", True))
]
with DAG("careless", schedule=Asset(uri=f"db://reader:{SECRET}@host/table", watchers=watchers)):

    @task
    def work(triggering_asset_events=None):
        for asset, events in triggering_asset_events.items():
            print(asset, events)

    work()
"""
LISTS = {
    "/api/v2/assets": "assets",
    "/api/v2/assets/events": "asset_events",
    "/api/v2/dags": "dags",
    "/api/v2/dags/~/dagRuns": "dag_runs",
    "/api/v2/triggers": "triggers",
    "/api/v2/deadLetters": "dead_letters",
    "/api/v2/importErrors": "import_errors",
}


async def test_no_secret_in_the_clear(deploy: Deploy, pipelines: Path) -> None:
    (pipelines / "careless.py").write_text(PIPELINE)
    there = deploy(pipelines, PIPELINE_SECRET=SECRET, TIDEGATE_LOG_LEVEL="debug")
    there.wait_for_dags(["careless"])
    there.wait_for_all_runs("careless", 1, timeout=60)
    there.wait_for(lambda: there.client.triggers()["fails"]["last_error"], "the error of the one that fails")
    there.wait_for(lambda: there.client.triggers()["works"]["last_error"], "the error of the other's source")
    there.wait_for(lambda: there.client.count("/api/v2/deadLetters"), "a dead letter")

    for path, plural in LISTS.items():
        answer = json.dumps(there.client.pages(path, plural))
        assert SECRET not in answer, path
    assert "db://reader@host/table" in json.dumps(there.client.get("/api/v2/assets"))
    found = {table for table, text in (await _everything_stored(there)).items() if SECRET in text}
    assert not found, f"in the clear in tables {found}"
    there.stop()
    assert not [path for path in _files(there.home) if SECRET.encode() in path.read_bytes()]
    assert SECRET not in there.log.read_text()


async def _everything_stored(there: Deployment) -> dict[str, str]:
    """All rows of each table as text."""
    connection = await asyncpg.connect(running_dsn(load_settings(home=there.home)))
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = {name: await connection.fetch(f'SELECT t::text FROM "{name}" t') for (name,) in tables}
    finally:
        await connection.close()
    return {name: "\n".join(text for (text,) in found) for name, found in rows.items()}


def _files(home: Path) -> list[Path]:
    """Everything under the home: logs, laid out code, and the data files of the database with its journal."""
    return [path for path in home.rglob("*") if path.is_file()]
