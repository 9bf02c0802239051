"""One queue watched by ten thousand assets: one row, one poller, and every asset gets what its filter lets through."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.domain.deliveries import Resolution
from app.processes.dag_processor.loading import load_in_child
from app.processes.triggerer import committer, slices
from app.services.dags import DagDefaults, sync_file
from tests.triggerer.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)

ASSETS = 10_000
DAGS = 10
MESSAGES = 10
PIPELINE = """
from app.sdk import DAG, Asset, AssetWatcher
from tests.triggerer.scripted import Broker

for dag in range({dags}):
    assets = [
        Asset(f"asset_{{dag}}_{{number}}", watchers=[AssetWatcher("inbox", Broker(folder={folder!r}){when})])
        for number in range({each})
    ]
    with DAG(f"consumer_{{dag}}", schedule=assets):
        pass
"""


async def sync(stage: Stage, pipelines: Path, text: str) -> tuple[float, float]:
    """Load and sync a file; how long either took."""
    file = pipelines / "fan_out.py"
    file.write_text(text)
    began = time.perf_counter()
    result = await load_in_child(str(pipelines), file.name, limit=120)
    assert result.error is None, result.error
    parsed = time.perf_counter()
    await sync_file(
        stage.database,
        stage.notifier,
        result,
        sources={file.name: text.encode()},
        defaults=DagDefaults(is_paused=False, max_active_runs=16, max_active_tasks=16),
        encrypt=stage.keys.encrypt,
        now=datetime.now(UTC),
    )
    return parsed - began, time.perf_counter() - parsed


def declared(folder: Path, *, assets: int, dags: int = DAGS, when: str = "") -> str:
    return PIPELINE.format(folder=str(folder), each=assets // dags, dags=dags, when=when)


async def counts(stage: Stage) -> Counter[str]:
    """Events by payload."""
    rows = await stage.world.fetch(
        "SELECT b.extra->>'payload' AS payload, count(*) AS events FROM asset_event e "
        "JOIN event_body b ON b.id = e.body_id GROUP BY 1"
    )
    return Counter({row["payload"]: row["events"] for row in rows})


async def test_ten_thousand_assets_on_one_queue(stage: Stage, tmp_path: Path) -> None:
    pipelines, folder = tmp_path / "pipelines", tmp_path / "queue"
    pipelines.mkdir()
    folder.mkdir()
    parse, first = await sync(stage, pipelines, declared(folder, assets=ASSETS))
    _, again = await sync(stage, pipelines, declared(folder, assets=ASSETS))
    print(f"\n{ASSETS} assets: parsed in {parse:.1f} s, synced in {first:.1f} s, again in {again:.1f} s")
    [row] = await stage.world.fetch("SELECT * FROM trigger")
    assert row["wanted"]
    assert await stage.world.value("SELECT count(*) FROM asset_watcher") == ASSETS
    messages = [f"m{number}" for number in range(MESSAGES)]
    for message in messages:
        (folder / f"{message}.msg").touch()
    began = time.perf_counter()
    async with stage.running(pending_demand_limit=10**6):
        await eventually(lambda: not list(folder.glob("*.msg")), 240)
        took = time.perf_counter() - began
        print(f"{MESSAGES} messages, {ASSETS * MESSAGES} events: {took:.1f} s")
    assert await counts(stage) == Counter(dict.fromkeys(messages, ASSETS))
    assert await stage.world.value("SELECT count(DISTINCT body_id) FROM asset_event") == MESSAGES
    assert (await stage.row(row["id"]))["events"] == ASSETS * MESSAGES
    assert (await stage.row(row["id"]))["start_count"] == 1


async def test_each_asset_gets_what_its_own_filter_lets_through(stage: Stage, tmp_path: Path) -> None:
    """A filter an asset, all different: one poller, applied at fan-out, while the runner's other triggers go on."""
    pipelines, folder = tmp_path / "pipelines", tmp_path / "queue"
    pipelines.mkdir()
    folder.mkdir()
    when = ", when=f\"starts_with(@, 'm{dag}') || @ == 'only {dag} {number}'\""
    await sync(stage, pipelines, declared(folder, assets=2000, when=when))
    [row] = await stage.world.fetch("SELECT * FROM trigger")
    ticker, ticks = await stage.watch("Ticker", pause=0.05)
    for message in ("m3", "m7", "only 4 17", "for nobody"):
        (folder / f"{message}.msg").touch()
    async with stage.running(pending_demand_limit=10**6):
        await eventually(lambda: not list(folder.glob("*.msg")), 120)
        await stage.events(ticks, 5)
    found = await counts(stage)
    assert {name: found[name] for name in ("m3", "m7", "only 4 17")} == {"m3": 200, "m7": 200, "only 4 17": 1}
    assert "for nobody" not in found
    assert (await stage.row(row["id"]))["start_count"] == 1
    assert (await stage.row(ticker))["start_count"] == 1


async def test_a_large_delivery_lets_others_pass_and_survives_a_crash_in_between(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are committed one by one. The triggerer is lost after some of them: nothing is lost or doubled."""
    monkeypatch.setattr(slices, "EVENTS_A_TRANSACTION", 50)
    monkeypatch.setattr(committer, "BATCH_EVENTS", 50)
    folder = tmp_path / "queue"
    folder.mkdir()
    trigger, first = await stage.watch("Broker", folder=str(folder))
    assets = [first]
    for _ in range(19):
        assets.append(await stage.world.asset())
        await stage.world.watcher(assets[-1], trigger)
    messages = [f"m{number:02}" for number in range(20)]
    for message in messages:
        (folder / f"{message}.msg").touch()

    stored, real = 0, committer.store_batch

    async def fails_after_some(*arguments: Any, **more: Any) -> list[Resolution]:
        nonlocal stored
        if stored == 3:
            stored += 1
            raise ZeroDivisionError("a defect: the delivery is fenced after three parts")
        stored += 1
        return await real(*arguments, **more)

    monkeypatch.setattr(committer, "store_batch", fails_after_some)
    async with stage.running():
        await eventually(lambda: not list(folder.glob("*.msg")), 60)
    for asset in assets:
        assert await stage.world.payloads(asset) == messages
    row = await stage.row(trigger)
    assert row["events"] == 20 * 20
    assert row["duplicates"] >= 3 * 40
    assert stored > 10
