"""Watchers whose trigger writes down when it runs: which of them, from when to when, in which process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.chaos.sources import FileSource

PIPELINE = """
import json
import os
import time
from contextlib import aclosing

from app.sdk import DAG, Asset, AssetWatcher
from watchers.files import FileEventTrigger


def note(watcher, what):
    line = json.dumps([watcher, what, os.getpid(), os.getppid(), time.monotonic()]) + "\\n"
    descriptor = os.open({report!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode())
    os.close(descriptor)


class Recorded(FileEventTrigger):
    def __init__(self, watcher, path, **more):
        super().__init__(path, **more)
        self.watcher = watcher

    def serialize(self):
        return f"{{__name__}}.Recorded", {{**super().serialize()[1], "watcher": self.watcher}}

    async def run(self):
        note(self.watcher, "start")
        try:
            async with aclosing(super().run()) as found:
                async for events in found:
                    yield events
        finally:
            note(self.watcher, "stop")

    async def on_kill(self):
        note(self.watcher, "kill")


for watcher, path in {folders!r}.items():
    fed = Asset(watcher, watchers=[AssetWatcher(watcher, Recorded(watcher, path, debounce=0.02))])
    with DAG(f"{{watcher}}_1", schedule=fed, max_active_runs=64):
        pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From start to stop in one process; ``until`` is infinite while nobody said that it stopped."""

    pid: int
    parent: int
    since: float
    until: float


class Recording:
    """Some watchers of a folder each, and what their triggers wrote."""

    def __init__(self, folder: Path, *, count: int) -> None:
        self._report = folder / "intervals.jsonl"
        self.sources = {
            f"watched{n}": FileSource(folder / f"watched{n}", kind=f"watched{n}") for n in range(1, count + 1)
        }

    def write_pipeline(self, pipelines: Path) -> list[str]:
        """Its DAGs."""
        folders = {name: str(source.folder) for name, source in self.sources.items()}
        (pipelines / "watched.py").write_text(PIPELINE.format(report=str(self._report), folders=folders))
        return [f"{name}_1" for name in self.sources]

    def lines(self) -> list[tuple[str, str, int, int, float]]:
        if not self._report.exists():
            return []
        return [tuple(json.loads(line)) for line in self._report.read_text().splitlines()]

    @property
    def kills(self) -> int:
        """How often a kill hook was called."""
        return sum(what == "kill" for _, what, *_ in self.lines())

    def intervals(self, watcher: str, *, deaths: dict[int, float] | None = None) -> list[Interval]:
        """In order of their starts. ``deaths``: when processes (parents) were killed, who said nothing any more."""
        found: list[Interval] = []
        for name, what, pid, parent, at in self.lines():
            if name != watcher or what == "kill":
                continue
            if what == "start":
                end = (deaths or {}).get(parent, float("inf"))
                found.append(Interval(pid=pid, parent=parent, since=at, until=end))
                continue
            [last] = [each for each in found if each.pid == pid and each.since < at][-1:]
            found[found.index(last)] = Interval(pid=pid, parent=parent, since=last.since, until=at)
        return sorted(found, key=lambda each: each.since)

    def assert_never_twice(self, *, deaths: dict[int, float] | None = None) -> None:
        """No watcher was ever run by two at a time."""
        for watcher in self.sources:
            for one, next_one in pairwise(self.intervals(watcher, deaths=deaths)):
                assert one.until <= next_one.since, f"{watcher} was run twice at a time: {one}, {next_one}"
