"""Crash points: nothing without the setting; with it, one process ends, at the place that was named, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.kernel import crash_points
from app.kernel.crash_points import Action, CrashPoint, Order, _Armed
from tests.chaos.points import Points
from tests.waiting import eventually_sync

ROOT = Path(__file__).resolve().parent.parent
PASS = """
from app.kernel.crash_points import CrashPoint, reach
for number in range(4):
    reach(CrashPoint.STORED)
    print(number, flush=True)
"""


def passing(folder: Path | None) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != crash_points.VARIABLE}
    if folder is not None:
        environment[crash_points.VARIABLE] = str(folder)
    return subprocess.Popen([sys.executable, "-c", PASS], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_without_the_setting_a_point_is_a_function_that_does_nothing(tmp_path: Path) -> None:
    assert crash_points.reach is crash_points._nothing
    assert not crash_points.IS_ARMED
    order = Points(tmp_path).arm(CrashPoint.STORED)
    with passing(None) as process:
        assert process.communicate()[0].split() == ["0", "1", "2", "3"]
    assert process.returncode == 0
    assert order.fired() is None


def test_a_process_is_killed_at_the_nth_passing_and_its_successor_goes_on(tmp_path: Path) -> None:
    order = Points(tmp_path).arm(CrashPoint.STORED, passing=3)
    with passing(tmp_path) as first:
        assert first.communicate()[0].split() == ["0", "1"]
    assert first.returncode == -signal.SIGKILL
    fired = order.fired()
    assert fired is not None
    assert (fired.pid, fired.point) == (first.pid, CrashPoint.STORED)
    with passing(tmp_path) as second:
        assert second.communicate()[0].split() == ["0", "1", "2", "3"]


def test_a_process_is_held_until_it_is_told_to_go_on(tmp_path: Path) -> None:
    order = Points(tmp_path).arm(CrashPoint.STORED, action=Action.HOLD)
    with passing(tmp_path) as process:
        eventually_sync(order.fired)
        assert process.poll() is None
        order.go_on()
        assert process.communicate()[0].split() == ["0", "1", "2", "3"]


def test_only_the_victim_obeys(tmp_path: Path) -> None:
    order = Points(tmp_path).arm(CrashPoint.STORED, victim=os.getpid() + 1)
    _Armed(tmp_path)(CrashPoint.STORED)
    assert order.fired() is None
    order.withdraw()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("point", CrashPoint)
def test_each_point_is_passed_in_one_place(point: CrashPoint) -> None:
    sources = [path.read_text() for path in (ROOT / "app").rglob("*.py")]
    assert sum(text.count(f"reach(CrashPoint.{point.name})") for text in sources) == 1


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    armed = Points(tmp_path).arm(CrashPoint.CLAIMED, passing=2, victim=7)
    text = (tmp_path / "claimed").read_bytes()
    assert crash_points.msgspec.json.decode(text, type=Order) == Order(token=armed.token, passing=2, victim=7)
