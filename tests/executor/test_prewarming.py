"""Warm parents are there before the first event, and stay while their code is current."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from app.kernel.settings import Settings
from app.processes.executor.parents import WarmParents
from app.services.dags import set_paused
from tests.executor.world import world
from tests.waiting import eventually

PIPELINE = """
import os
from app.sdk import DAG, task

with DAG("quick"):
    @task
    def work():
        return os.getpid()
    work()
"""


def _is_gone(process: psutil.Process) -> bool:
    return not process.is_running()


def _warm_parents() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "app.processes.executor.warm_parent" in child.cmdline():
                found.append(child)
    return found


async def test_code_is_warm_before_it_is_asked_for(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        (early,) = await eventually(_warm_parents, what="a warm parent without any run")
        await there.run_to_end("quick")
        assert _warm_parents() == [early]


async def test_the_process_that_waits_may_be_killed(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE) as there:
        (parent,) = await eventually(_warm_parents)
        pids = set()
        for _ in range(3):
            (waiting,) = await eventually(parent.children, what="a process that waits for an attempt")
            pids.add(waiting.pid)
            waiting.kill()
            await eventually(partial(_is_gone, waiting))
            run = await there.run_to_end("quick")
            assert run["state"] == "success"
        assert len(pids) == 3
        (waiting,) = await eventually(parent.children)
        run = await there.run_to_end("quick")
        values = await there.rows("SELECT value::text AS pid FROM xcom ORDER BY dag_run_id DESC LIMIT 1")
        assert values == [{"pid": str(waiting.pid)}]


async def test_a_broken_import_is_tried_once(database_url: str, executor_settings: Settings, tmp_path: Path) -> None:
    marker = tmp_path / "imports"
    source = f"""
import sys
if "app.processes.executor.warm_parent" in sys.orig_argv:
    with open({str(marker)!r}, "a") as file:
        file.write("x")
    raise RuntimeError("not here")
{PIPELINE}"""
    async with world(database_url, executor_settings, source) as there:
        await eventually(marker.exists)
        await eventually(lambda: not _warm_parents(), what="the parent that failed is gone")
        there.notifier.poke("dags")
        run = await there.run_to_end("quick")
        assert run["state"] == "failed"
        # Once early, once for the attempt.
        assert marker.read_text() == "xx"


async def test_current_code_stays_and_other_code_ends(executor_settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    parents = WarmParents(logs=executor_settings.home, limit=2, idle_seconds=0.01, import_limit=60)
    try:
        found = [await parents.parent(digest=digest, root=tmp_path, entry="pipeline.py") for digest in ("a", "b")]
        parents.keep([("a", "pipeline.py")])
        for parent in found:
            await parent.ready
            parent.used_at -= 10
        await parents.evict_idle()
        assert [parent.gone for parent in found] == [False, True]
        parents.keep([])
        await parents.evict_idle()
        assert found[0].gone
    finally:
        await parents.stop()


async def test_an_unpaused_dag_is_warmed(database_url: str, executor_settings: Settings) -> None:
    async with world(database_url, executor_settings, PIPELINE, paused=True) as there:
        await set_paused(there.database, there.notifier, dag_id="quick", paused=False)
        assert await eventually(_warm_parents, what="a warm parent once the DAG is unpaused")


async def test_the_process_that_waits_ends_before_its_parent(database_url: str, executor_settings: Settings) -> None:
    """Nothing is left to whoever reaps orphans."""
    async with world(database_url, executor_settings, PIPELINE):
        (parent,) = await eventually(_warm_parents)
        (waiting,) = await eventually(parent.children, what="a process that waits for an attempt")
    assert not psutil.pid_exists(waiting.pid)
    assert not psutil.pid_exists(parent.pid)
