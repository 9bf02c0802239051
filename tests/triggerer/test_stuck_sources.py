"""Sources that stand still are started again and shown as degraded; those that only wait for us are not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.processes.triggerer import stuck_sources
from tests.triggerer import scripted_sources
from tests.triggerer.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)

#: Settings of a triggerer that is quick to judge.
QUICK: dict[str, Any] = {"lag_interval": 0.2, "stuck_source_after": 1.0, "event_trigger_return_pause": 0.1}


def kind(name: str) -> str:
    return f"{scripted_sources.MODULE}.{name}"


async def reaches(stage: Stage, trigger: int, **wanted: Any) -> Any:
    """The row of the trigger once it has these values."""

    async def there() -> Any:
        row = await stage.row(trigger)
        return row if all(row[name] == value for name, value in wanted.items()) else None

    return await eventually(there, 60)


async def degraded(stage: Stage, trigger: int) -> str:
    return str(
        await eventually(lambda: stage.world.value("SELECT degraded_reason FROM trigger WHERE id = $1", trigger), 60)
    )


async def test_a_source_that_stands_still_is_started_again_and_shown_until_it_moves(
    stage: Stage, tmp_path: Path
) -> None:
    trigger, asset = await stage.watch(kind("LiesStill"), lag=7, path=str(tmp_path / "go"))
    other, _ = await stage.watch(kind("Moves"), lag=1000)
    async with stage.running(**QUICK):
        reason = await degraded(stage, trigger)
        assert reason.startswith("7 messages wait at the source and none came for ")
        row = await reaches(stage, trigger, lag=7)
        assert row["lag_at"] is not None
        assert row["degraded_since"] is not None
        (tmp_path / "go").touch()
        assert await stage.events(asset, 1) == ["moved"]
        row = await reaches(stage, trigger, degraded_reason=None, degraded_since=None)
        assert row["status"] == "running"
        assert row["restarts"] >= 1
        assert row["last_error"] is None  # it did not fail: it was started again
        assert (await stage.row(other))["restarts"] == 0
        assert (await stage.row(other))["degraded_reason"] is None
    assert "stands still: 7 messages wait" in stage.log(trigger)


async def test_a_source_that_gets_empty_is_not_degraded_any_more(stage: Stage, tmp_path: Path) -> None:
    trigger, _ = await stage.watch(kind("LiesStill"), lag=2, path=str(tmp_path / "never"))
    async with stage.running(**QUICK):
        await degraded(stage, trigger)
    await stage.world.value(
        "UPDATE trigger SET kwargs = $2 WHERE id = $1 RETURNING id",
        trigger,
        stage.keys.encrypt(f'{{"lag":0,"path":"{tmp_path / "never"}"}}'),
    )
    async with stage.running(**QUICK):
        await reaches(stage, trigger, lag=0, degraded_reason=None)


async def test_what_is_in_hand_is_our_wait(stage: Stage) -> None:
    """A consumer has too much waiting: the trigger is held at its yield for longer than a source may stand still."""
    trigger, asset = await stage.watch(kind("Moves"), lag=9)
    async with stage.running(**QUICK, pending_demand_limit=1):
        await stage.events(asset, 1)
        await reaches(stage, trigger, lag=9)
        await asyncio.sleep(3)
        row = await stage.row(trigger)
        assert (row["restarts"], row["degraded_reason"]) == (0, None)
        assert len(await stage.world.payloads(asset)) == 1


@pytest.mark.parametrize("lag", [0, None, "raises", "nonsense", "hangs"])
async def test_nothing_and_unknown_are_no_reason(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: object
) -> None:
    trigger, _ = await stage.watch(kind("LiesStill"), lag=lag, path=str(tmp_path / "never"), secret="hunter2")
    async with stage.running(**QUICK):
        await eventually(lambda: stage.world.value("SELECT lag_at FROM trigger WHERE id = $1", trigger), 60)
        await asyncio.sleep(2.5)
        row = await stage.row(trigger)
        assert (row["restarts"], row["degraded_reason"], row["lag"]) == (0, None, 0 if lag == 0 else None)
    told = stage.log(trigger).count("how much waits at the source cannot be told at present")
    assert told == (lag in {"raises", "nonsense", "hangs"})
    assert "hunter2" not in stage.log(trigger)


async def test_a_source_that_does_not_close_runs_alone_from_then_on(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck_sources, "CLOSE_SECONDS", 0.5)
    trigger, asset = await stage.watch(kind("ClosesNever"), lag=1, path=str(tmp_path / "go"))
    other, others_asset = await stage.watch(kind("Moves"), lag=1)
    async with stage.running(**QUICK, trigger_restart_max=1):
        await eventually(lambda: stage.world.value("SELECT last_error FROM trigger WHERE id = $1", trigger), 60)
        assert (await stage.row(trigger))["status"] in {"quarantined", "running"}
        (tmp_path / "go").touch()
        assert (await stage.events(asset, 1))[0] == "moved"
        before = len(await stage.world.payloads(others_asset))
        await stage.events(others_asset, before + 2)
        assert (await stage.row(other))["last_error"] is None
