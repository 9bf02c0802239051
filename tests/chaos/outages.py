"""A PostgreSQL of a test's own that goes away and comes back, and what the processes said meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.kernel.settings import load_settings
from app.store.embedded import EmbeddedPostgres
from app.store.migrate import upgrade
from tests.chaos.fleet import Fleet
from tests.waiting import eventually

#: An administrator stops the server and its sessions are told; it ends without a word.
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT


@asynccontextmanager
async def migrated_server() -> AsyncIterator[EmbeddedPostgres]:
    """A server that the test may end and start."""
    home = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    home.chmod(0o711)
    try:
        async with EmbeddedPostgres(load_settings(home=home, postgres_fsync=False)) as server:
            await upgrade(server.dsn)
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def end(server: EmbeddedPostgres, number: signal.Signals) -> None:
    """End it, and return once it is gone."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, number)
    await eventually(lambda: server.pid is None, what="the end of the server")


class Said:
    """Lines that the processes of a fleet have logged since it was made."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._from = {node.name: _size(node.log) for node in fleet.nodes.values()}
        self._watchers = {path: _size(path) for path in self._logs_of_watchers()}

    def lines(self, name: str) -> list[dict[str, object]]:
        """What one process said."""
        return _lines(self._fleet.nodes[name].log, self._from[name])

    def actions(self, name: str) -> Counter[str]:
        """How often it said what."""
        return Counter(str(line.get("action", line.get("event"))) for line in self.lines(name))

    def lines_of_watchers(self) -> dict[str, int]:
        """How many lines the log of each watcher got."""
        return {
            path.name: len(path.read_bytes()[self._watchers.get(path, 0) :].splitlines())
            for path in self._logs_of_watchers()
        }

    def _logs_of_watchers(self) -> list[Path]:
        return sorted((self._fleet.folder / "home" / "logs" / "triggers").glob("*.log"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _lines(path: Path, start: int) -> list[dict[str, object]]:
    text = path.read_bytes()[start:].decode(errors="replace")
    return [_read(line) for line in text.splitlines()]


def _read(line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
    except ValueError:
        return {"event": line}
    return found if isinstance(found, dict) else {"event": line}
