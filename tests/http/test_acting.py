"""What callers change: runs, pauses, waiting events; and what they read of a run: logs and XComs."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.domain.states import RunState
from app.interfaces.http.xcoms import shown_value
from app.kernel.attempt_logs import attempt_log_path
from app.kernel.settings import Settings
from app.processes.host import Host
from app.services.demand import plan
from tests.factories import make_dag, on_assets, store_events, task
from tests.http.filled import DAG, fill, run_id_of
from tests.triggerer.world import World
from watchers.encoding import encode_kwargs

RUNS = "/api/v2/dags/d/dagRuns"
RUN = run_id_of(RunState.SUCCESS)


@pytest.fixture
async def dag(world: World) -> str:
    """A DAG on the assets a and b."""
    async with world.database.hot() as hot:
        await make_dag(hot, "d", schedule=on_assets("a & b"), tasks=[task("one"), task("two", "one")])
    return "d"


@pytest.mark.usefixtures("dag")
async def test_a_run_made_by_hand(api: httpx.AsyncClient) -> None:
    body: dict[str, Any] = {"logical_date": None, "dag_run_id": "mine:1+2", "conf": {"a": [1]}, "note": "n"}
    made = await api.post(RUNS, json=body)

    assert made.status_code == 200, made.text
    run = made.json()
    assert (run["dag_run_id"], run["state"], run["run_type"], run["conf"]) == (
        "mine:1+2",
        "queued",
        "manual",
        {"a": [1]},
    )
    assert (run["triggered_by"], run["triggering_user_name"], run["note"]) == ("rest_api", "admin", "n")
    assert (await api.get(f"{RUNS}/mine:1+2")).json() == run
    assert (await api.post(RUNS, json=body)).status_code == 409
    assert (await api.post(RUNS, json={})).status_code == 422, "logical_date must be given"
    assert (await api.post("/api/v2/dags/nothing/dagRuns", json={"logical_date": None})).status_code == 404
    dated = {"logical_date": "2026-01-01T01:00:00+01:00"}
    assert (await api.post(RUNS, json=dated)).json()["dag_run_id"] == "manual__2026-01-01T00:00:00+00:00"
    assert (await api.post(RUNS, json=dated)).status_code == 409


@pytest.mark.usefixtures("dag")
async def test_pausing(api: httpx.AsyncClient, world: World) -> None:
    for paused in (True, True, False):
        answer = await api.patch("/api/v2/dags/d", json={"is_paused": paused})
        assert (answer.status_code, answer.json()["is_paused"]) == (200, paused)
        assert await world.value("SELECT is_paused FROM dag") == paused
    assert (await api.patch("/api/v2/dags/nothing", json={"is_paused": True})).status_code == 404
    for body in ({}, {"is_paused": None}, {"is_paused": True, "x": 1}):
        assert (await api.patch("/api/v2/dags/d", json=body)).status_code == 422


@pytest.mark.usefixtures("dag")
async def test_waiting_events_are_shown_and_dropped(api: httpx.AsyncClient, world: World) -> None:
    await store_events(world.database, "a", "a")
    asset = await world.value("SELECT id FROM asset WHERE name = 'a'")
    paths = [f"/api/v2/assets/{asset}/queuedEvents", "/api/v2/dags/d/assets/queuedEvents",
             f"/api/v2/dags/d/assets/{asset}/queuedEvents"]  # fmt: skip
    for path in paths:
        found = (await api.get(path)).json()
        entry = found["queued_events"][0]
        assert (found["total_entries"], entry["dag_id"], entry["asset_id"], entry["events"]) == (1, "d", asset, 2)
        early = {"before": "2000-01-01T00:00:00Z"}
        assert (await api.get(path, params=early)).status_code == 404
        assert (await api.delete(path, params=early)).status_code == 404

        answer = await api.delete(path)
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await api.get(path)).status_code == (await api.delete(path)).status_code == 404
        await store_events(world.database, "a", "a")
    states = await world.fetch("SELECT state, count(*) FROM demand GROUP BY state ORDER BY state")
    assert [tuple(row) for row in states] == [("dropped", 6), ("pending", 2)]


@pytest.mark.usefixtures("dag")
async def test_a_version_that_cannot_be_read_is_told(api: httpx.AsyncClient, world: World) -> None:
    await world.value("""UPDATE dag_version SET spec = '{"dag_id": 1}'""")
    answer = await api.post(RUNS, json={"logical_date": None})
    assert (answer.status_code, "cannot be used" in answer.text) == (409, True)


def log_of(settings: Settings, content: bytes, *, attempt: int = 1) -> str:
    """Write a log of a task of :func:`fill`; its path at the API."""
    path = attempt_log_path(settings.home, dag_id=DAG, run_id=RUN, task_id="t_success", map_index=-1, attempt=attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"/api/v2/dags/{DAG}/dagRuns/{RUN}/taskInstances/t_success/logs/{attempt}"


async def test_a_log_is_read_whatever_is_in_it(api: httpx.AsyncClient, world: World, settings: Settings) -> None:
    await fill(world)
    lines = [
        b'{"timestamp": "2026-01-01T00:00:00Z", "level": "info", "logger": "task", "event": "hello", "n": 1}',
        b"plain \xff\xfe\x00 bytes",
        b'{"event": "\\ud800", "x": NaN, "y": 1e999}',
        b'{"event": {"a": 1}, "timestamp": 3}',
        b'{"no": "event"}',
        b'{"event": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"event": ' + b"9" * 5000 + b"}",
        b"{",
        b"",
        "a\u2028b\x0bc\r".encode(),
        b"no newline at the end",
    ]
    path = log_of(settings, b"\n".join(lines))

    answer = await api.get(path)
    assert answer.status_code == 200
    content = answer.json()["content"]
    assert len(content) == len(lines)
    assert content[0] == json.loads(lines[0])
    assert content[1]["event"] == "plain \ufffd\ufffd\0 bytes"
    assert (content[3]["event"], content[3]["timestamp"]) == ('{"a": 1}', "3")
    assert [line["event"] for line in content[-2:]] == ["a\u2028b\x0bc", "no newline at the end"]
    assert all(isinstance(line["event"], str) for line in content)

    text = await api.get(path, headers={"Accept": "text/plain"})
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text.startswith("2026-01-01T00:00:00Z info hello\nplain ")
    rows = await api.get(path, headers={"Accept": "application/x-ndjson"})
    assert [json.loads(row) for row in rows.text.split("\n")[:-1]] == content


async def test_of_a_long_log_the_end_is_sent(api: httpx.AsyncClient, world: World, settings: Settings) -> None:
    await fill(world)
    path = log_of(settings, b"".join(b"line %d\n" % number for number in range(600_000)))
    content = (await api.get(path)).json()["content"]
    assert "earlier bytes are not shown" in content[0]["event"]
    assert content[-1]["event"] == "line 599999"
    assert content[1]["event"].startswith("line ")


async def test_a_log_that_is_not_there(api: httpx.AsyncClient, world: World, settings: Settings) -> None:
    await fill(world)
    path = log_of(settings, b"")
    assert (await api.get(path)).json() == {"content": [], "continuation_token": None}
    for other, reason in ((path[:-1] + "2", "log of attempt 2"), (path.replace("t_success", "t_x"), "task 't_x'")):
        answer = await api.get(other)
        assert (answer.status_code, reason in answer.text) == (404, True)


async def test_xcoms_are_plain_json(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    path = f"/api/v2/dags/{DAG}/dagRuns/{RUN}/taskInstances/t_success/xcomEntries"
    listed = (await api.get(path)).json()
    assert [entry["key"] for entry in listed["xcom_entries"]] == ["moment", "none", "return_value"]
    values = {key: (await api.get(f"{path}/{key}")).json()["value"] for key in ("moment", "none", "return_value")}
    assert values == {"moment": "2026-01-01T00:00:00+00:00", "none": None, "return_value": [1, ["a"]]}
    as_text = (await api.get(f"{path}/return_value", params={"stringify": True})).json()
    assert as_text["value"] == '[1, ["a"]]'
    assert (await api.get(f"{path}/nothing")).status_code == 404


def test_each_stored_form_has_a_plain_one() -> None:
    cases = [
        ((1, {"a": (2,)}), [1, {"a": [2]}]),
        ({"b", "a"}, ["a", "b"]),
        ({1: "x"}, [[1, "x"]]),
        ({"__type__": "x"}, {"__type__": "x"}),
        (b"\xff", {"__type__": "bytes", "base64": "/w=="}),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        ((date(2026, 1, 1), time(1, 2)), ["2026-01-01", "01:02:00"]),
        (timedelta(days=1, milliseconds=5), 86400.005),
        ([Decimal("1.50"), UUID(int=1), PurePosixPath("/a")], ["1.50", "00000000-0000-0000-0000-000000000001", "/a"]),
        (2**70, str(2**70)),
        ([float("nan"), float("-inf")], ["nan", "-inf"]),
        (RunState.FAILED, "app.domain.states.RunState.FAILED"),
    ]
    for value, shown in cases:
        assert shown_value(json.loads(encode_kwargs({"v": value}))) == {"v": shown}
    odd = [{"__type__": "timedelta"}, {"__type__": ["x"]}, {"__type__": "new", "value": (1,)}]
    assert shown_value(odd) == odd


async def test_a_dag_tells_what_its_file_declares(api: httpx.AsyncClient, world: World) -> None:
    async with world.database.hot() as hot:
        await make_dag(hot, "d", tasks=[task("a")], params={"p": 1}, tags=("t",), description="x")
    answer = (await api.get("/api/v2/dags/d/details")).json()
    assert (answer["params"], answer["tags"][0]["name"], answer["description"]) == ({"p": 1}, "t", "x")
    assert [one["task_id"] for one in answer["tasks"]] == ["a"]


async def test_attribution_adds_up(api: httpx.AsyncClient, host: Host, world: World) -> None:
    """One event, then three while its run is busy: each started one run and is the cause of no other."""
    async with world.database.hot() as hot:
        await make_dag(hot, "busy", schedule=on_assets("a"), tasks=[task("one")], max_active_runs=1)
    await store_events(world.database, "a")
    await plan(host.database, host.notifier)
    for _ in range(3):
        await store_events(world.database, "a")
    for _ in range(4):
        await plan(host.database, host.notifier)
        await world.value("UPDATE dag_run SET state = 'success', end_date = now() WHERE state = 'running'")
    runs = (await api.get("/api/v2/dags/busy/dagRuns")).json()["dag_runs"]
    events = (await api.get("/api/v2/assets/events")).json()["asset_events"]
    assert (len(runs), len(events)) == (4, 4)
    assert sum(run["triggering"] for event in events for run in event["created_dagruns"]) == len(runs)
    for run in runs:
        path = f"/api/v2/dags/busy/dagRuns/{run['dag_run_id']}/upstreamAssetEvents"
        causes = (await api.get(path)).json()["asset_events"]
        including = [event for event in events if run["dag_run_id"] in {r["run_id"] for r in event["created_dagruns"]}]
        assert causes == including


async def test_a_failed_trigger_is_retried_by_hand(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    (failed,) = (await api.get("/api/v2/triggers", params={"status": "quarantined"})).json()["triggers"]
    answer = await api.post(f"/api/v2/triggers/{failed['id']}/retry")
    assert answer.status_code == 200
    assert answer.json() == failed == (await api.get(f"/api/v2/triggers/{failed['id']}")).json()
    asked = "SELECT retry_requested_at FROM trigger WHERE id = $1"
    first = await world.value(asked, failed["id"])
    assert first is not None
    assert (await api.post(f"/api/v2/triggers/{failed['id']}/retry")).status_code == 200
    assert await world.value(asked, failed["id"]) == first

    (running, *_) = (await api.get("/api/v2/triggers", params={"status": "running"})).json()["triggers"]
    refused = await api.post(f"/api/v2/triggers/{running['id']}/retry")
    assert (refused.status_code, f"Trigger {running['id']} is running" in refused.json()["detail"]) == (409, True)
    assert await world.value(asked, running["id"]) is None
    for call in (api.get("/api/v2/triggers/999999"), api.post("/api/v2/triggers/999999/retry")):
        assert (await call).status_code == 404
