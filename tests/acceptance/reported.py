"""What the task code of a deployment says it saw: a pipeline whose task writes down each payload it was given."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

#: Format with ``watchers`` (source of a list), ``asset``, ``dag_id``, ``limit`` and ``report`` (a path).
PIPELINE = """
import json
import os

from app.sdk import DAG, Asset, AssetWatcher, MessageQueueTrigger, task

fed = Asset({asset!r}, watchers={watchers})

with DAG({dag_id!r}, schedule=fed, max_active_runs={limit}, max_active_tasks={limit}):

    @task
    def report(run_id=None, triggering_asset_events=None):
        lines = [json.dumps([run_id, event.extra["payload"]["value"]]) for event in triggering_asset_events[fed]]
        # One write a task: appends of a few bytes do not mix.
        descriptor = os.open({report!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, ("\\n".join(lines) + "\\n").encode())
        os.close(descriptor)

    report()
"""


class Report:
    """The pairs (run id, value) that tasks wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_pipeline(self, file: Path, *, asset: str, dag_id: str, watchers: str, limit: int = 16) -> None:
        """Write the pipeline file; ``watchers`` is the source text of a list."""
        names = {"asset": asset, "dag_id": dag_id, "limit": limit, "report": str(self.path)}
        file.write_text(PIPELINE.format(watchers=watchers, **names))

    def lines(self) -> list[tuple[str, Any]]:
        """All pairs so far."""
        if not self.path.exists():
            return []
        return [(run_id, value) for run_id, value in map(json.loads, self.path.read_text().splitlines())]

    def assert_each_once(self, values: list[Any]) -> None:
        """Each of ``values`` was seen by exactly one run, and each run saw one."""
        seen = self.lines()
        assert Counter(value for _, value in seen) == Counter(values)
        assert max(Counter(run_id for run_id, _ in seen).values()) == 1
