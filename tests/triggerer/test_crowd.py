"""One trigger that blocks beside a thousand others in its runner; figures with ``-s``."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.triggerer import sleepers
from tests.triggerer.stage import Stage, runner_pids
from tests.waiting import eventually
from watchers.describe import describe_trigger

pytestmark = pytest.mark.timeout(240)

CROWD = 1000
_INSERT = """
WITH made AS (
    INSERT INTO trigger (kind, identity, classpath, kwargs, wanted, status)
    SELECT 'asset', t.identity, t.classpath, t.kwargs, true, 'unassigned'
    FROM unnest($1::text[], $2::text[], $3::bytea[]) AS t(identity, classpath, kwargs) RETURNING id
)
INSERT INTO asset_watcher (asset_id, trigger_id, name) SELECT $4::bigint, id, 'watch' FROM made
"""
_SAID_BY = """
SELECT count(DISTINCT e.source) FROM asset_event e JOIN event_body b ON b.id = e.body_id
WHERE (b.extra->'payload')::text = $1::text
"""


class Crowd:
    """Many triggers that wait, on one asset."""

    def __init__(self, stage: Stage, size: int) -> None:
        self._stage = stage
        self.size = size

    async def insert(self) -> None:
        world = self._stage.world
        described = [describe_trigger(sleepers.Waits(number)) for number in range(self.size)]
        await world.value(
            _INSERT,
            [hashlib.sha256(each.identity.encode()).hexdigest() for each in described],
            [each.classpath for each in described],
            [world.keys.encrypt(each.kwargs_text) for each in described],
            await world.asset(),
        )
        self._stage.notifier.poke("triggers")

    async def all_run_in(self, pids: Callable[[], set[int]]) -> int:
        """The process in which each of them has said that it runs."""

        async def found() -> int | None:
            for pid in pids():
                if await self._stage.world.value(_SAID_BY, str(pid)) >= self.size:
                    return pid
            return None

        pid = await eventually(found, 120)
        assert pid is not None
        return pid


async def moment_of(answer: Callable[[], Awaitable[Any]]) -> float:
    """Unix time at which the answer was true for the first time."""
    await eventually(answer, 60)
    return time.time()


async def block(stage: Stage, folder: Path, *, block_limit: float) -> dict[str, float]:
    """The whole story; seconds by what happened."""
    crowd = Crowd(stage, CROWD)
    async with stage.running(block_limit=block_limit, triggerer_capacity=2 * CROWD, trigger_restart_min=0.5):
        await crowd.insert()
        first = await crowd.all_run_in(runner_pids)
        blocker, _ = await stage.watch(f"{sleepers.__name__}.Sleeps", folder=str(folder))
        await eventually((folder / "began").exists, 60)
        began = float((folder / "began").read_text().split()[0])

        async def is_named() -> bool:
            return "sleepers.py:" in ((await stage.row(blocker))["last_error"] or "")

        async def is_quarantined() -> bool:
            return await stage.status(blocker) == "quarantined"

        named = await moment_of(is_named)
        assert "in run" in (await stage.row(blocker))["last_error"]
        assert "sleepers.py" in stage.log(blocker)
        if block_limit >= 5:
            assert await stage.status(blocker) == "running", "named only once it was quarantined"
        quarantined = await moment_of(is_quarantined)
        second = await crowd.all_run_in(lambda: runner_pids() - {first})
        resumed = time.time()

        await blocks_alone_after_growing_pauses(stage, blocker)
        assert second in runner_pids(), "it took others along once more"
        killed = time.time()
        os.kill(second, signal.SIGKILL)
        await crowd.all_run_in(lambda: runner_pids() - {first, second})
        again = time.time()
        others = "SELECT count(*) FROM trigger WHERE id <> $1 AND (status <> 'running' OR last_error IS NOT NULL)"
        assert await stage.world.value(others, blocker) == 0
    return {
        "named at the API after": named - began,
        "quarantined after": quarantined - began,
        "all others run, after the quarantine": resumed - quarantined,
        "all others run, after a kill from outside": again - killed,
    }


async def blocks_alone_after_growing_pauses(stage: Stage, blocker: int) -> None:
    pauses: list[float] = []
    failures = 1

    async def failed_again() -> bool:
        return int((await stage.row(blocker))["consecutive_errors"]) > failures

    while len(pauses) < 2:
        await eventually(failed_again, 60)
        row = await stage.row(blocker)
        failures = row["consecutive_errors"]
        assert row["runs_alone"]
        pauses.append((row["next_attempt_at"] - row["last_error_at"]).total_seconds())
    assert pauses[1] > pauses[0]


async def test_a_blocker_is_named_at_once_and_a_thousand_others_go_on(stage: Stage, tmp_path: Path) -> None:
    print(json.dumps(await block(stage, tmp_path, block_limit=2.0)))


@pytest.mark.slow
async def test_the_same_at_the_limit_of_ten_seconds(stage: Stage, tmp_path: Path) -> None:
    print(json.dumps(await block(stage, tmp_path, block_limit=10.0)))


async def test_what_runners_take_is_told_with_the_heartbeat(stage: Stage) -> None:
    crowd = Crowd(stage, 20)
    async with stage.running() as triggerer:
        await crowd.insert()
        pid = await crowd.all_run_in(runner_pids)
        assert triggerer.lease is not None
        job = triggerer.lease.job.id

        async def told() -> Any:
            text = await stage.world.value("SELECT details FROM job WHERE id = $1", job)
            found = json.loads(text)["runners"] if text else []
            return found[0] if found and found[0]["triggers"] and found[0]["base_bytes"] else None

        runner = await eventually(told)
        assert (runner["key"], runner["pid"]) == ("installed", pid)
        assert runner["rss_bytes"] >= runner["base_bytes"] > 10_000_000
        assert runner["triggers"] == {f"{sleepers.__name__}.Waits": 20}
