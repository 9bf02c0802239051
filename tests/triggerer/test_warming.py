"""What a take-over would need is there before it: a runner, and the modules of the deployment's triggers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from app.processes.triggerer.runner_child_warming import import_ahead
from tests.triggerer import scripted
from tests.triggerer.stage import Stage, runner_pids
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


async def test_a_triggerer_without_triggers_keeps_a_runner_for_those_of_others(stage: Stage) -> None:
    trigger, _ = await stage.watch("Ticker", pause=0.5)
    await stage.world.value("UPDATE trigger SET queue = 'of somebody else' WHERE id = $1", trigger)
    async with stage.running() as triggerer:
        [first] = await eventually(runner_pids)
        os.kill(first, signal.SIGKILL)
        [second] = await eventually(lambda: runner_pids() - {first})
        assert triggerer.lease is not None
        assert not triggerer.lease.supervisor.held
        # A trigger that comes and goes does not take it along.
        other, asset = await stage.watch("Ticker", pause=0.1)
        await stage.events(asset, 1)
        await stage.world.value("UPDATE trigger SET wanted = false WHERE id = $1", other)
        stage.notifier.poke("triggers")
        held = triggerer.lease.supervisor.held
        await eventually(lambda: not held)
        assert runner_pids() == {second}
        # Nobody needs it any more.
        await stage.world.value("UPDATE trigger SET wanted = false")
        _, asset = await stage.watch("Ticker", pause=0.1)
        await stage.events(asset, 1)
    assert not runner_pids()


async def test_without_any_trigger_there_is_no_runner(stage: Stage) -> None:
    async with stage.running() as triggerer:
        await eventually(lambda: triggerer.lease is not None and triggerer.lease.job.confirmed_at)
        assert not runner_pids()


def test_what_cannot_be_imported_ahead_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exits_when_imported.py").write_text("raise SystemExit(3)")
    (tmp_path / "comes_along.py").write_text("there = True")
    (tmp_path / "imports_when_it_runs.py").write_text("class Trigger:\n    runs_with = ('comes_along',)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_ahead(["exits_when_imported.Trigger", "no.such.Trigger", f"{scripted.MODULE}.Nothing"])
    import_ahead(["imports_when_it_runs.Trigger"])
    import comes_along  # type: ignore[import-not-found]

    assert comes_along.there
