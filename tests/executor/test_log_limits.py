"""Logs of attempts have a largest size, whoever writes; the task goes on."""

from __future__ import annotations

from pathlib import Path

from app.kernel.attempt_logs import append_line
from app.kernel.settings import Settings, with_overrides
from app.processes.executor.log_cutter import OWN_LINE, ROOM, LogCutter
from tests.executor.world import world

LIMIT = 65_536
PIPELINE = """
import os, subprocess, time
from app.sdk import DAG, task

with DAG("talks"):
    @task
    def work():
        for number in range(3000):
            print("a line of text that is told again and again", number)
        subprocess.run(["head", "-c", "3000000", "/dev/zero"], check=True)
        while os.fstat(1).st_size > 1_000_000:
            time.sleep(0.05)
        return 42
    work()
"""


async def test_a_task_that_talks_too_much_ends_well_with_a_log_of_bounded_size(
    database_url: str, executor_settings: Settings
) -> None:
    settings = with_overrides(executor_settings, task_log_max_bytes=LIMIT)
    async with world(database_url, settings, PIPELINE) as there:
        run = await there.run_to_end("talks")
        assert run["state"] == "success"
        [path] = (settings.home / "logs").glob("dag_id=talks/**/*.log")
        assert path.stat().st_size <= LIMIT + ROOM + 4_096
        told = [line["event"] for line in there.log("talks", run["run_id"], "work") if "limit" in line["event"]]
        assert any("written past it is cut" in event for event in told)


async def test_a_log_is_cut_again_and_again_and_told_once(tmp_path: Path) -> None:
    path, small = tmp_path / "a.log", tmp_path / "b.log"
    cutter = LogCutter(limit=1_000)
    append_line(small, "x", level="info", logger="x")
    paths = {str(path), str(small), str(tmp_path / "not there yet")}
    sizes = []
    for _ in range(3):
        with path.open("ab") as file:
            file.write(b"z" * (ROOM + 2_000))
        assert await cutter.look(paths) == 1
        sizes.append(path.stat().st_size)
        assert await cutter.look(paths) == 0
    assert len(set(sizes)) == 1
    assert path.read_bytes().count(b"has reached its limit of 1,000 bytes") == 1
    assert path.read_bytes().startswith(b"z" * (1_000 + OWN_LINE) + b"\n{")
    assert small.stat().st_size < 200
