"""Loading the same file again changes nothing, whatever the hash seed (issue 2, point 5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.specs import LoadResult
from app.processes.dag_processor.loading import load_in_child
from tests.dag_processor.running import PipelinesFolder

SOURCE = """
from datetime import datetime, timedelta, timezone, UTC
from enum import Enum
from pathlib import Path, PurePosixPath
from app.sdk import DAG, Asset
from watchers import AssetWatcher, BaseEventTrigger, TriggerEvent


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Mine(BaseEventTrigger):
    def __init__(self, **kwargs):
        self.kwargs = kwargs

    def serialize(self):
        return f"{__name__}.Mine", self.kwargs

    async def run(self):
        yield TriggerEvent(1)


WATCHERS = [
    AssetWatcher(name, Mine(value=value))
    for name, value in {
        "tuple": (1, ("a", None), ()),
        "set": {"alpha", "beta", "gamma", "delta", "epsilon"},
        "frozenset": frozenset({("x", 1), ("y", 2), ("z", 3)}),
        "datetime": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2))),
        "timedelta": timedelta(days=1, microseconds=3),
        "enum": [Colour.RED, Colour.BLUE],
        "bytes": b"\\x00\\xff",
        "path": [Path("/tmp/a"), PurePosixPath("b/c")],
        "float": [0.1, 1e300, -0.0, 5e-324],
        "text": "snow ☃ 𝄞 e\\u0301",
        "dict": {"z": 1, "a": {"k": {3, 1, 2}}},
        "none": None,
        "big": 2**62,
        "bool": [True, 1, 1.0],
    }.items()
]
with DAG("d", schedule=[Asset("one", watchers=WATCHERS)], tags={"b", "a", "c", "d", "e"}):
    pass
"""


@pytest.mark.timeout(180)
async def test_loads_under_different_hash_seeds_change_no_row(
    folder: PipelinesFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a.py", SOURCE)
    tables = ("trigger", "asset", "asset_watcher", "asset_watcher_source", "asset_reference", "dag", "dag_version")
    before = None
    for seeds in (range(1, 4), range(4, 8), range(8, 12), range(12, 16)):
        for result in await _loads(folder.path, seeds, monkeypatch):
            assert result.error is None
            outcome = await folder.state.sync("a.py", *result.dags, code=SOURCE)
            rows = await folder.state.versions_of_rows(*tables)
            assert before is None or (outcome.versions, rows) == ((), before)
            before = rows
    triggers = await folder.state.triggers()
    assert len(triggers) == 14
    assert {row.start_count for row in triggers} == {0}


async def _loads(root: Path, seeds: range, monkeypatch: pytest.MonkeyPatch) -> list[LoadResult]:
    """One load a seed, which the child inherits."""
    loads = []
    for seed in seeds:
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        loads.append(await load_in_child(str(root.resolve()), "a.py", limit=60))
    return loads
