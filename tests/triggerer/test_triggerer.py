"""The triggerer with real runners on a real database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.processes.triggerer.owned_rows import OwnedRows
from app.services import triggers
from app.services.bundles import store_bundle
from app.store.errors import DatabaseUnavailable
from tests.triggerer import scripted
from tests.triggerer.stage import Stage, runner_pids
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


async def test_bad_triggers_harm_nobody_else(stage: Stage, tmp_path: Path) -> None:
    """Issue point 6: tickers tick on, processes stay, refusals are dead letters, good values arrive."""
    control = tmp_path / "control"
    control.touch()
    async with stage.running(trigger_restart_max=3) as triggerer:
        tickers = [(await stage.watch("Ticker", pause=0.5))[1] for _ in range(20)]
        for asset in tickers:
            await stage.events(asset, 1)
        pids = runner_pids()
        started = time.time()
        poison, poisoned = await stage.watch("Poison")
        constructors = {
            how: (await stage.watch("BadConstructor", path=str(control), how=how))
            for how in ("value", "exit", "interrupt")
        }
        missing, _ = await stage.watch("no.such.module.Trigger")
        absent, _ = await stage.watch(f"{scripted.MODULE}.NoSuchClass")
        printer, printed = await stage.watch("PrintsBinary", secret="hunter2-secret")
        nonsense, _ = await stage.watch("YieldsNonsense")
        barren, _ = await stage.watch("NoGenerator")
        _, left = await stage.watch("ExitsInTask")

        payloads = await stage.events(poisoned, 3)
        assert payloads[1:] == [[1, 2, 3], "good"]
        assert payloads[0] == {"__type__": "bytes", "base64": "AP8="}
        letters = await stage.world.letters(poison)
        assert [row["code"] for row in letters] == [
            "nan",
            "cycle",
            "depth",
            "surrogate",
            "size",
            "type",
            "key",
            "range",
        ]
        big = letters[4]
        assert (len(big["raw"]), big["raw_size"]) == (65_536, 64 * 1024 * 1024)
        assert (await stage.row(poison))["refused"] == 8

        for how, (trigger, _) in constructors.items():
            await stage.error(trigger)
            assert "not today" in (await stage.row(trigger))["last_error"], how
        for trigger, words in (
            (missing, "no.such"),
            (absent, "NoSuchClass"),
            (nonsense, "dict"),
            (barren, "generator"),
        ):
            await stage.error(trigger)
            assert words in (await stage.row(trigger))["last_error"]
        assert "scripted.py" in (await stage.row(nonsense))["last_error"]
        assert await stage.events(printed, 1) == ["printed"]
        assert await stage.events(left, 1) == ["a task of this trigger raised SystemExit"]
        assert "printed text" in stage.log(printer)
        assert "hunter2-secret" not in stage.log(printer)
        assert "logged with ***" in stage.log(printer)
        control.unlink()
        for _, asset in constructors.values():
            assert await stage.events(asset, 1) == ["built"]

        until = time.time()
        for asset in tickers:
            await stage.events(asset, int((until - started) / 0.5) // 2)
        moments = [[event["at"] for event in await stage.world.payloads(asset)] for asset in tickers]
        gaps = [later - earlier for each in moments for earlier, later in pairwise(each)]
        assert max(gaps) < 10, "a ticker stood still"
        assert runner_pids() == pids, "a runner was replaced"
        assert triggerer.lease is not None


async def test_acknowledged_only_after_the_commit_and_released_on_stop(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    folder.mkdir()
    async with stage.running():
        trigger, asset = await stage.watch("Broker", folder=str(folder))
        for number in range(10):
            (folder / f"{number}.msg").touch()
        await stage.events(asset, 10)
        await eventually(lambda: not list(folder.glob("*.msg")))
        row = await stage.row(trigger)
        assert (row["status"], row["events"], row["duplicates"]) == ("running", 10, 0)
    row = await stage.row(trigger)
    assert (row["status"], row["owner_id"]) == ("unassigned", None)
    assert (folder / "cleaned").read_text() == "x"
    assert sorted(await stage.world.payloads(asset)) == [str(number) for number in range(10)]
    assert not runner_pids()


async def test_a_killed_runner_loses_and_doubles_nothing(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    folder.mkdir()
    async with stage.running():
        _, asset = await stage.watch("Broker", folder=str(folder))
        ticker = (await stage.watch("Ticker", pause=0.2))[1]
        total = 0
        for _ in range(2):
            for _ in range(25):
                (folder / f"{total:04}.msg").touch()
                total += 1
            await stage.events(asset, total - 20)
            (pid,) = runner_pids()
            os.kill(pid, signal.SIGKILL)
            before = len(await stage.world.payloads(ticker))
            await stage.events(ticker, before + 2)
        await stage.events(asset, total)
        await eventually(lambda: not list(folder.glob("*.msg")))
    assert await stage.world.payloads(asset) == [f"{number:04}" for number in range(total)]


async def test_who_kills_the_runner_is_known_and_runs_alone(stage: Stage, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.touch()
    async with stage.running():
        ticker = (await stage.watch("Ticker", pause=0.2))[1]
        await stage.events(ticker, 1)
        for how in ("exit", "segv"):
            before = len(await stage.world.payloads(ticker))
            trigger, asset = await stage.watch("Dies", path=str(control), how=how)

            async def quarantined(trigger: int = trigger) -> bool:
                rows = await stage.world.fetch(
                    "SELECT 1 FROM state_change "
                    "WHERE subject = 'trigger' AND subject_id = $1 AND to_state = 'quarantined'",
                    trigger,
                )
                return bool(rows)

            assert await eventually(quarantined, 60)
            assert "runner" in (await stage.row(trigger))["last_error"]
            await stage.events(ticker, before + 3)
            control.unlink()
            assert await stage.events(asset, 1) == ["alive"]
            control.touch()
        assert await stage.world.value("SELECT consecutive_errors FROM trigger ORDER BY id LIMIT 1") == 0


async def test_a_blocked_loop_is_reported_and_the_culprit_quarantined(stage: Stage, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.touch()
    async with stage.running(block_limit=2.0):
        tickers = [(await stage.watch("Ticker", pause=0.2))[1] for _ in range(5)]
        for asset in tickers:
            await stage.events(asset, 1)
        (pid,) = runner_pids()
        trigger, asset = await stage.watch("Blocks", path=str(control))

        assert await eventually(lambda: "blocks all triggers" in stage.log(trigger), 60)
        assert "scripted.py" in stage.log(trigger)
        assert "time.sleep" in stage.log(trigger) or "in run" in stage.log(trigger)
        await eventually(lambda: pid not in runner_pids(), 60)
        before = {each: len(await stage.world.payloads(each)) for each in tickers}
        for each in tickers:
            await stage.events(each, before[each] + 2)
        error = (await stage.row(trigger))["last_error"]
        assert "blocked its runner" in error
        assert "scripted.py" in error
        control.unlink()
        assert await stage.events(asset, 1) == ["free"]
        assert await stage.world.value("SELECT count(*) FROM trigger WHERE last_error IS NOT NULL") == 1


async def test_a_stopped_process_blames_nobody(stage: Stage) -> None:
    async with stage.running(block_limit=1.0):
        trigger, asset = await stage.watch("Ticker", pause=0.05)
        await stage.events(asset, 3)
        (pid,) = runner_pids()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(3)  # Time itself is what is tested: three limits pass.
        os.kill(pid, signal.SIGCONT)
        before = len(await stage.world.payloads(asset))
        await stage.events(asset, before + 3)
        assert runner_pids() == {pid}
        assert (await stage.row(trigger))["last_error"] is None


async def test_unwanted_triggers_stop_at_once_and_come_back(stage: Stage) -> None:
    async with stage.running():
        trigger, asset = await stage.watch("Ticker", pause=0.05)
        await stage.events(asset, 1)
        await stage.world.value("UPDATE trigger SET wanted = false WHERE id = $1", trigger)
        stage.notifier.poke("triggers")

        async def released() -> bool:
            return await stage.status(trigger) == "unassigned"

        assert await eventually(released)
        count = len(await stage.world.payloads(asset))
        await stage.world.value("UPDATE trigger SET wanted = true WHERE id = $1", trigger)
        stage.notifier.poke("triggers")
        await stage.events(asset, count + 2)
        row = await stage.row(trigger)
        assert (row["epoch"], row["start_count"]) == (2, 2)


async def test_a_trigger_whose_row_is_gone_is_closed(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    folder.mkdir()
    async with stage.running():
        trigger, asset = await stage.watch("Broker", folder=str(folder))
        (folder / "1.msg").touch()
        await stage.events(asset, 1)
        await stage.world.value("DELETE FROM asset_watcher WHERE trigger_id = $1", trigger)
        await stage.world.value("DELETE FROM trigger WHERE id = $1", trigger)
        stage.notifier.poke("triggers")
        await eventually((folder / "cleaned").exists)


@pytest.mark.parametrize("is_seen_before", [True, False])
async def test_a_trigger_claimed_anew_by_its_owner_disturbs_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_seen_before: bool
) -> None:
    """Its row was freed under a later epoch, as by a change of its queue: the old instance is closed, the new one runs,
    and the time limit for the closing of the old one does not end the runner of them all."""
    limit = 3.0
    monkeypatch.setattr("app.processes.triggerer.supervisor.LEAVE_SECONDS", limit)
    async with stage.running():
        trigger, asset = await stage.watch("Ticker", pause=0.1)
        _, beside = await stage.watch("Ticker", pause=0.1)
        await stage.events(asset, 1)
        await stage.events(beside, 1)
        if not is_seen_before:
            monkeypatch.setattr(OwnedRows, "due_in", property(lambda _: 1.0))
        await stage.world.value(
            "UPDATE trigger SET status = 'unassigned', owner_id = NULL, epoch = epoch + 1 WHERE id = $1", trigger
        )
        stage.notifier.poke("triggers")

        async def payloads_past_the_limit() -> list[Any] | None:
            found = await stage.world.payloads(asset)
            anew = [event["at"] for event in found if event["n"] == 1][1:]
            return found if anew and found[-1]["at"] > anew[0] + limit + 1 else None

        found = await eventually(payloads_past_the_limit, 60)
        assert [event["n"] for event in found].count(1) == 2
        undisturbed = await stage.world.payloads(beside)
        assert [event["n"] for event in undisturbed] == list(range(1, len(undisturbed) + 1))


async def test_a_claim_whose_answer_was_lost_is_run_nevertheless(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = triggers.claim
    lost: list[Any] = []

    async def claim(*arguments: Any, **options: Any) -> list[Any]:
        claimed = await answered(*arguments, **options)
        if claimed and not lost:
            lost.extend(claimed)
            raise DatabaseUnavailable("the connection broke after the commit")
        return claimed

    monkeypatch.setattr(triggers, "claim", claim)
    async with stage.running():
        _, asset = await stage.watch("Ticker", pause=0.05)
        await stage.events(asset, 2)
        assert lost


async def test_a_start_that_cannot_be_recorded_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = triggers.mark_running
    failed: list[Any] = []

    async def mark_running(*arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(options)
            raise RuntimeError("a defect")
        return await recorded(*arguments, **options)

    monkeypatch.setattr(triggers, "mark_running", mark_running)
    async with stage.running(event_trigger_return_pause=0.05):
        trigger, _ = await stage.watch("Returns")

        async def started_again() -> bool:
            return int((await stage.row(trigger))["start_count"]) > 1

        await eventually(started_again, 60)
        assert failed


async def test_filters_are_applied_for_each_watcher(stage: Stage) -> None:
    async with stage.running():
        trigger, asset = await stage.watch("Returns", when="@ > `2`")
        plain = await stage.world.asset()
        broken = await stage.world.asset()
        await stage.world.watcher(plain, trigger)
        await stage.world.watcher(broken, trigger, when="length(@) > `1`")
        stage.notifier.poke("triggers")
        assert await stage.events(asset, 2) == [3, 4]
        assert sorted(await stage.events(plain, 5)) == [0, 1, 2, 3, 4]

        async def all_told() -> bool:
            return len(await stage.world.letters(trigger)) == 5

        assert await eventually(all_told)
        letters = await stage.world.letters(trigger)
        assert {(row["code"], row["asset_id"]) for row in letters} == {("filter", broken)}
        assert await stage.world.payloads(broken) == []


async def test_schemas_are_applied_for_each_watcher_after_its_filter(stage: Stage) -> None:
    async with stage.running():
        asset = await stage.world.asset()
        strict, choosy = await stage.world.asset(), await stage.world.asset()
        trigger = await stage.world.trigger(asset, classpath=f"{scripted.MODULE}.Returns")
        await stage.world.watcher(strict, trigger, schema={"type": "integer", "minimum": 3})
        await stage.world.watcher(choosy, trigger, when="@ > `2`", schema={"type": "integer", "maximum": 3})
        await stage.world.dag("d", asset)
        stage.notifier.poke("triggers")
        assert await stage.events(asset, 5) == [0, 1, 2, 3, 4]
        assert await stage.events(strict, 2) == [3, 4]
        assert await stage.events(choosy, 1) == [3]

        async def all_told() -> list[Any]:
            letters = await stage.world.letters(trigger)
            return letters if len(letters) == 4 else []

        letters = await eventually(all_told, 60)
    assert [(row["asset_id"], row["code"], row["payload"]) for row in letters] == [
        (strict, "schema", "0"),
        (strict, "schema", "1"),
        (strict, "schema", "2"),
        (choosy, "schema", "4"),
    ]
    assert letters[0]["reason"] == "payload: breaks minimum: 3 (schema /minimum)"


async def test_a_changed_schema_counts_at_once_and_restarts_nothing(stage: Stage) -> None:
    async with stage.running():
        trigger, asset = await stage.watch("Ticker", pause=0.2)
        await stage.events(asset, 1)
        await stage.world.value("UPDATE asset_watcher SET payload_schema = '{\"not\": {}}'")
        stage.notifier.poke("triggers")
        assert await eventually(lambda: stage.world.letters(trigger), 60)
        held = len(await stage.world.payloads(asset))
        await stage.world.value("UPDATE asset_watcher SET payload_schema = NULL")
        stage.notifier.poke("triggers")
        await stage.events(asset, held + 1)
        row = await stage.row(trigger)
    assert (row["start_count"], row["restarts"]) == (1, 0)


async def test_a_trigger_that_returns_starts_again(stage: Stage) -> None:
    async with stage.running(event_trigger_return_pause=0.05):
        trigger, asset = await stage.watch("Returns")
        assert await stage.events(asset, 5) == [0, 1, 2, 3, 4]

        async def came_back() -> bool:
            return int((await stage.row(trigger))["duplicates"]) >= 10

        assert await eventually(came_back)
        row = await stage.row(trigger)
        assert row["restarts"] >= 2
        assert row["last_error"] is None
        assert await stage.world.payloads(asset) == [0, 1, 2, 3, 4]


async def test_positions_are_given_back(stage: Stage) -> None:
    async with stage.running(event_trigger_return_pause=0.05):
        _, asset = await stage.watch("Positioned", until=3)
        assert await stage.events(asset, 4) == [0, 1, 2, 3]


async def test_arguments_arrive_as_they_were_written(stage: Stage) -> None:
    values: dict[str, Any] = {"a": (1, 2), "b": {3}, "c": b"x", "d": 1.5, "e": {"k": [None, True]}}
    async with stage.running():
        _, asset = await stage.watch("Shouts", **values)
        (said,) = await stage.events(asset, 1)
        assert said == {name: [repr(value), type(value).__name__] for name, value in values.items()}


async def test_a_yield_of_many_large_payloads_is_one_commit(stage: Stage) -> None:
    async with stage.running():
        _, asset = await stage.watch("Large", count=30)
        await stage.events(asset, 30)
        assert (
            await stage.world.value("SELECT count(DISTINCT timestamp) FROM asset_event WHERE asset_id = $1", asset) == 1
        )


async def test_failures_back_off_with_masked_errors(stage: Stage) -> None:
    async with stage.running(trigger_restart_min=0.1, trigger_restart_max=0.2):
        trigger, _ = await stage.watch("Raises", secret="hunter2-secret")

        async def failed_often() -> bool:
            return int((await stage.row(trigger))["consecutive_errors"]) >= 3

        assert await eventually(failed_often, 60)
        row = await stage.row(trigger)
        assert row["restarts"] >= 2
        assert "password ***" in row["last_error"]
        assert "hunter2" not in stage.log(trigger)
        assert "ConnectionError" in stage.log(trigger)


async def test_the_secrets_of_connections_are_masked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CONN_BROKER", "kafka://u:p%40ssw0rd@host")
    async with stage.running(trigger_restart_min=0.1, trigger_restart_max=0.2):
        trigger, _ = await stage.watch("LooksUp", conn_id="broker")

        async def failed() -> bool:
            return "cannot log in" in ((await stage.row(trigger))["last_error"] or "")

        assert await eventually(failed, 60)
        assert "cannot log in with ***" in (await stage.row(trigger))["last_error"]
        log = stage.log(trigger)
        assert "logged ***" in log
        assert "printed ***" in log
        assert "p@ssw0rd" not in log


async def test_trouble_with_a_source_is_shown_and_ends(stage: Stage, tmp_path: Path) -> None:
    healed = tmp_path / "healed"
    async with stage.running():
        trigger, _ = await stage.watch("SourceTrouble", path=str(healed), secret="hunter2-secret")

        async def in_trouble() -> bool:
            return int((await stage.row(trigger))["consecutive_errors"]) >= 4

        assert await eventually(in_trouble)
        row = await stage.row(trigger)
        assert row["status"] == "running"
        assert "connection refused" in row["last_error"]
        assert "hunter2" not in row["last_error"]
        healed.touch()

        async def healthy() -> bool:
            return bool((await stage.row(trigger))["consecutive_errors"] == 0)

        assert await eventually(healthy)


async def test_a_lost_lease_stores_nothing_and_is_followed_by_another(stage: Stage) -> None:
    async with stage.running() as triggerer:
        trigger, asset = await stage.watch("Ticker", pause=0.05)
        await stage.events(asset, 3)
        assert triggerer.lease is not None
        first = triggerer.lease.job.id
        peer = await stage.world.job()
        # A peer took it: what we had no longer counts.
        await stage.world.value("UPDATE trigger SET owner_id = $2, epoch = epoch + 1 WHERE id = $1", trigger, peer)
        before = len(await stage.world.payloads(asset))
        await stage.world.value("UPDATE job SET ended_at = now() WHERE id = ANY($1::bigint[])", [first])

        await eventually(lambda: triggerer.lease is not None and triggerer.lease.job.id > first, 60)
        # The peer's row is dead too (nobody holds its lock), so we get the trigger back, under a later epoch.
        await stage.events(asset, before + 3)
        assert (await stage.row(trigger))["epoch"] >= 3
        numbers = [event["n"] for event in await stage.world.payloads(asset)]
        assert numbers.count(1) == 2


async def test_back_pressure_holds_a_trigger_and_lets_others_go_on(stage: Stage) -> None:
    async with stage.running(pending_demand_limit=20):
        flood, flooded = await stage.watch("Fast", size=5)
        await stage.events(flooded, 20)
        _, ticked = await stage.watch("Ticker", pause=0.05)
        await stage.events(ticked, 5)
        held = len(await stage.world.payloads(flooded))
        assert held < 2000
        await stage.world.value("DELETE FROM demand WHERE dag_id = $1", f"dag_{flooded}")
        stage.notifier.poke("demand")
        await stage.events(flooded, held + 5)
        assert (await stage.row(flood))["refused"] == 0


async def test_a_log_is_lines_of_json(stage: Stage) -> None:
    async with stage.running():
        trigger, asset = await stage.watch("PrintsBinary", secret="s")
        await stage.events(asset, 1)
        lines = [json.loads(line) for line in stage.log(trigger).splitlines()]
        assert {"timestamp", "level", "logger", "event"} == set(lines[0])


CUSTOM = b"""
from watchers.triggers import BaseEventTrigger, TriggerEvent
import asyncio
import helpers.words


class Mine(BaseEventTrigger):
    def serialize(self):
        return "flows.custom.Mine", {}

    async def run(self):
        yield TriggerEvent([helpers.words.WORD, __name__])
        await asyncio.sleep(3600)
"""


async def test_code_of_pipelines_runs_in_runners_of_its_own(stage: Stage) -> None:
    async with stage.running():
        _, ticked = await stage.watch("Ticker", pause=0.2)
        await stage.events(ticked, 1)
        digest = ""
        for version in ("old", "new"):
            sources = {
                "flows/custom.py": CUSTOM,
                "helpers/__init__.py": b"",
                "helpers/words.py": f"WORD = {version!r}".encode(),
            }
            async with stage.database.transaction() as connection:
                digest = await store_bundle(connection, sources, entry="flows/custom.py")
            asset = await stage.world.asset()
            await stage.world.dag(f"dag_{asset}", asset)
            trigger = await stage.world.trigger(classpath="flows.custom.Mine")
            await stage.world.value("UPDATE trigger SET bundle_digest = $2 WHERE id = $1", trigger, digest)
            await stage.world.watcher(asset, trigger)
            stage.notifier.poke("triggers")
            assert await stage.events(asset, 1) == [[version, "flows.custom"]]
        assert len(runner_pids()) == 3
        broken = await stage.world.trigger(classpath="flows.custom.Other")
        await stage.world.value("UPDATE trigger SET bundle_digest = $2 WHERE id = $1", broken, digest)
        stage.notifier.poke("triggers")
        assert "Other" in await stage.error(broken)
