"""Trigger code beside the pipeline: its newest version runs, in the same row; reading it again changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from app.kernel.settings import load_settings
from app.store.embedded import running_dsn
from tests.acceptance.conftest import Deploy
from tests.acceptance.deployment import Deployment
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)

SPEAKER = """
import asyncio

from watchers import BaseEventTrigger, TriggerEvent

TEXT = {text!r}


class Speaker(BaseEventTrigger):
    def serialize(self):
        return f"{{__name__}}.Speaker", {{}}

    async def run(self):
        while True:
            yield TriggerEvent(TEXT)
            await asyncio.sleep(0.5)
"""
SPEECH = """
from app.sdk import DAG, Asset, AssetWatcher
from voices.speaker import Speaker

with DAG("speech", schedule=Asset("speech", watchers=[AssetWatcher("speaker", Speaker())]), max_active_runs=1):
    pass
"""


def test_edited_code_of_a_trigger_runs_without_a_restart(deploy: Deploy, pipelines: Path) -> None:
    helper = pipelines / "voices" / "speaker.py"
    helper.parent.mkdir()
    (helper.parent / "__init__.py").touch()
    helper.write_text(SPEAKER.format(text="first"))
    (pipelines / "speech.py").write_text(SPEECH)
    there = deploy(pipelines)
    there.wait_for_dags(["speech"])
    there.wait_for(lambda: _said(there)[-1:] == ["first"], "the first text")
    members, trigger = there.members(), there.client.triggers()["speaker"]

    helper.write_text(SPEAKER.format(text="second"))
    there.wait_for(lambda: _said(there)[-1:] == ["second"], "the second text")
    helper.write_text("this is no Python")
    there.wait_for(lambda: there.client.get("/api/v2/importErrors")["import_errors"], "an import error")
    said = len(_said(there))
    there.wait_for(lambda: len(_said(there)) > said + 2, "the last good version")
    helper.write_text(SPEAKER.format(text="third"))
    there.wait_for(lambda: _said(there)[-1:] == ["third"], "the third text")

    assert not there.client.get("/api/v2/importErrors")["import_errors"]
    texts = list(dict.fromkeys(_said(there)))
    assert texts == ["first", "second", "third"]
    assert there.members() == members
    after = there.client.triggers()["speaker"]
    assert (after["id"], after["created_date"]) == (trigger["id"], trigger["created_date"])


def _said(there: Deployment) -> list[str]:
    return [event["extra"]["payload"] for event in there.client.events("speech")]


MANY_KINDS = """
import asyncio
import json
import os
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path, PurePosixPath

from app.sdk import DAG, Asset, AssetWatcher, FileEventTrigger
from watchers import BaseEventTrigger, TriggerEvent

with open({report!r}, "a") as report:
    report.write(json.dumps([os.getpid(), hash("seeded")]) + "\\n")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Silent(BaseEventTrigger):
    def __init__(self, *, value):
        self.value = value

    def serialize(self):
        return f"{{__name__}}.Silent", {{"value": self.value}}

    async def run(self):
        await asyncio.Event().wait()
        yield TriggerEvent("never")


KINDS = {{
    "tuple": (1, ("a", None), ()),
    "set": {{"alpha", "beta", "gamma", "delta", "epsilon"}},
    "frozenset": frozenset({{("x", 1), ("y", 2), ("z", 3)}}),
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2))),
    "timedelta": timedelta(days=1, microseconds=3),
    "enum": [Colour.RED, {{Colour.BLUE, Colour.RED}}],
    "bytes": b"\\x00\\xff",
    "path": [Path("/tmp/a"), PurePosixPath("b/c")],
    "float": [0.1, 1e300, -0.0, 5e-324],
    "text": "snow ☃ 𝄞 e\\u0301",
    "dict": {{"z": 1, "a": {{"k": {{3, 1, 2}}}}}},
}}
watchers = [AssetWatcher(name, Silent(value=value)) for name, value in KINDS.items()]
watchers.append(AssetWatcher("files", FileEventTrigger(str(Path({folder!r}) / "☃" / "*"))))
with DAG("kinds", schedule=Asset("kinds", watchers=watchers)):
    pass
"""
WATCHERS = 12
READINGS = 15
COUNT_READINGS = """
CREATE TABLE reading (number bigserial);
CREATE FUNCTION note_reading() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO reading DEFAULT VALUES; RETURN NULL; END';
CREATE TRIGGER note_reading AFTER UPDATE OF last_parsed_at ON dag_file FOR EACH ROW EXECUTE FUNCTION note_reading();
"""


class Kinds:
    """A deployment with a watcher for each kind of argument, whose readings of the file are counted."""

    def __init__(self, there: Deployment, file: Path, report: Path, connection: asyncpg.Connection[Any]) -> None:
        self.there = there
        self.file = file
        self.connection = connection
        self._report = report
        self._before = self._rows()

    async def readings(self) -> int:
        """How often a reading of the file was recorded."""
        return int(await self.connection.fetchval("SELECT count(*) FROM reading"))

    def assert_nothing_changed(self) -> None:
        seen = {line.split(",")[1] for line in self._report.read_text().splitlines()}
        assert len(seen) >= READINGS, "not every process had a hash seed of its own"
        assert self._rows() == self._before
        assert {row["start_count"] for row in self._before.values()} == {1}

    def _rows(self) -> dict[str, Any]:
        names = ("id", "created_date", "start_count", "restarts", "triggerer_id", "status", "events")
        return {name: {key: row[key] for key in names} for name, row in self.there.client.triggers().items()}


@pytest_asyncio.fixture
async def kinds(deploy: Deploy, pipelines: Path, tmp_path: Path) -> AsyncIterator[Kinds]:
    report, file = tmp_path / "report.jsonl", pipelines / "kinds.py"
    file.write_text(MANY_KINDS.format(report=str(report), folder=str(tmp_path)))
    there = deploy(pipelines, TIDEGATE_DAG_RETIRE_GRACE="120")
    there.wait_for_dags(["kinds"])
    there.wait_for(lambda: _running(there) == WATCHERS, "all triggers at work")
    connection = await asyncpg.connect(_dsn(there))
    try:
        await connection.execute(COUNT_READINGS)
        yield Kinds(there, file, report, connection)
    finally:
        await connection.close()


async def test_reading_an_unchanged_file_changes_nothing(kinds: Kinds) -> None:
    """The file goes away for a moment and comes back as it was, so that it is read again: fifteen times."""
    away = kinds.file.with_suffix(".away")
    for number in range(1, READINGS + 1):
        kinds.file.rename(away)
        await eventually(lambda: kinds.connection.fetchval("SELECT missing_since IS NOT NULL FROM dag_file"))
        away.rename(kinds.file)

        async def is_read(number: int = number) -> bool:
            return await kinds.readings() >= number

        await eventually(is_read, 60, what="another reading")
    kinds.assert_nothing_changed()


@pytest.mark.slow
async def test_more_dag_processors_change_nothing(kinds: Kinds) -> None:
    """Fifteen more dag processors of the deployment, each with a hash seed of its own, five at a time."""
    together = 5
    for first in range(1, READINGS + 1, together):
        with _dag_processors(kinds.there, range(first, first + together)):

            async def all_have_read(wanted: int = first + together - 1) -> bool:
                return await kinds.readings() >= wanted

            await eventually(all_have_read, 120, what="five more readings")
    kinds.assert_nothing_changed()


@contextmanager
def _dag_processors(there: Deployment, seeds: range) -> Iterator[None]:
    """More dag processors of the deployment, one for each seed."""
    processes = []
    try:
        for seed in seeds:
            environment = {**there.environment, "PYTHONHASHSEED": str(seed), "TIDEGATE_DATABASE_URL": _dsn(there)}
            log = os.open(there.log, os.O_WRONLY | os.O_APPEND)
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", "app.main", "dag-processor"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
            os.close(log)
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(30) for process in processes] == [0] * len(processes)


def _dsn(there: Deployment) -> str:
    found = running_dsn(load_settings(home=there.home))
    assert found is not None
    return found


def _running(there: Deployment) -> int:
    return sum(trigger["status"] == "running" for trigger in there.client.triggers().values())
