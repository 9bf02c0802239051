"""Every reading operation, on a database with something in every state."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.states import RunState, TaskState
from app.interfaces.http.describe import description
from tests.factories import make_job
from tests.http.described import Operation, operations, values
from tests.http.filled import DAG, OTHER, RETIRED, fill, run_id_of
from tests.triggerer.world import World

ROOT = Path(__file__).resolve().parents[2]
RUN = run_id_of(RunState.SUCCESS)
#: What answers 404 because nothing is there, rightly.
MAY_BE_ABSENT = ("/queuedEvents", "/logs/")


async def places(world: World) -> dict[str, Any]:
    """Values for the parameters of a path."""
    return {
        "dag_id": DAG,
        "run_id": RUN,
        "task_id": "t_success",
        "xcom_key": "return_value",
        "try_number": 1,
        "asset_id": await world.value("SELECT id FROM asset WHERE name = 'a'"),
        "import_error_id": await world.value("SELECT max(id) FROM import_error"),
        "dead_letter_id": await world.value("SELECT min(id) FROM dead_letter"),
        "trigger_id": await world.value("SELECT min(id) FROM trigger"),
    }


def attributes(refusal: httpx.Response) -> list[str]:
    """What a list can be ordered by, as its refusal of an unknown attribute tells."""
    assert refusal.status_code == 400, refusal.text
    return str(refusal.json()["detail"]).partition("known: ")[2].split(", ")


async def read(api: httpx.AsyncClient, operation: Operation, path: str, **query: Any) -> None:
    """One request, whose answer must be good and as described."""
    answer = await api.get(path, params=query)
    absent = any(part in path for part in MAY_BE_ABSENT) or query.get("map_index", -1) != -1
    assert answer.status_code == 200 or (absent and answer.status_code == 404), f"{path} {query}: {answer.text}"
    operation.check(answer.status_code, answer.json())


READING = [operation for operation in operations() if operation.method == "get"]


async def test_everything_can_be_read_with_every_filter_and_order(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    places_of_all = await places(world)
    for operation in READING:
        path = operation.path.format(**places_of_all)
        await read(api, operation, path)
        for parameter in operation.parameters:
            if parameter["in"] != "query" or parameter["name"] == "order_by":
                continue
            for value in values(parameter):
                await read(api, operation, path, **{parameter["name"]: value})
        if "order_by" in operation.names("query"):
            for attribute in attributes(await api.get(path, params={"order_by": "nothing"})):
                await read(api, operation, path, order_by=attribute)
                await read(api, operation, path, order_by=[f"-{attribute}", attribute])


async def test_each_run_and_task_shows_its_state(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    runs = (await api.get(f"/api/v2/dags/{DAG}/dagRuns")).json()["dag_runs"]
    assert {run["dag_run_id"]: run["state"] for run in runs} == {run_id_of(state): state for state in RunState}
    one = (await api.get(f"/api/v2/dags/{DAG}/dagRuns/{RUN}")).json()
    assert one == next(run for run in runs if run["dag_run_id"] == RUN)

    tasks = (await api.get(f"/api/v2/dags/~/dagRuns/{RUN}/taskInstances")).json()["task_instances"]
    states = {task["task_id"]: task["state"] for task in tasks}
    assert states == {f"t_{state}": None if state is TaskState.NONE else state.value for state in TaskState}


async def test_filters_select(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    cases: list[tuple[str, dict[str, Any], str, set[Any]]] = [
        ("/api/v2/dags", {}, "dags", {DAG, OTHER}),
        ("/api/v2/dags", {"exclude_stale": False}, "dags", {DAG, OTHER, RETIRED}),
        ("/api/v2/dags", {"paused": True}, "dags", {OTHER}),
        ("/api/v2/dags", {"dag_id_pattern": "CONS|nothing"}, "dags", {DAG}),
        ("/api/v2/dags", {"dag_id_pattern": "b%g"}, "dags", {OTHER}),
        ("/api/v2/assets", {"dag_ids": [OTHER]}, "assets", {"a", "c"}),
        ("/api/v2/assets", {"only_active": False, "name_prefix_pattern": "sl"}, "assets", {"sleeping"}),
        ("/api/v2/assets", {"uri_pattern": "X://B"}, "assets", {"b"}),
        (f"/api/v2/dags/{DAG}/dagRuns", {"state": ["queued", "failed"]}, "dag_runs", {"run:queued+1", "run:failed+1"}),
        (f"/api/v2/dags/{DAG}/dagRuns", {"start_date_lt": "2000-01-01T00:00:00Z"}, "dag_runs", set()),
        ("/api/v2/triggers", {"status": "quarantined"}, "triggers", {3}),
        ("/api/v2/deadLetters", {"code": "nan"}, "dead_letters", {"nan"}),
        ("/api/v2/jobs", {"job_type": "api_server", "is_alive": False}, "jobs", set()),
        ("/api/v2/importErrors", {"filename_pattern": "broken"}, "import_errors", {"broken/other.py"}),
    ]
    names = {"dags": "dag_id", "assets": "name", "dag_runs": "dag_run_id", "dead_letters": "code", "jobs": "job_type",
             "import_errors": "filename"}  # fmt: skip
    for path, query, plural, expected in cases:
        found = (await api.get(path, params=query)).json()
        if plural == "triggers":
            assert [trigger["status"] for trigger in found["triggers"]] == ["quarantined"]
            continue
        assert {entry[names[plural]] for entry in found[plural]} == expected, (path, query)
        assert found["total_entries"] == len(expected)


async def test_an_event_shows_the_runs_it_started(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    events = (await api.get("/api/v2/assets/events", params={"order_by": "id"})).json()["asset_events"]
    started = [[run["run_id"] for run in event["created_dagruns"]] for event in events]
    assert started == [[run_id_of(RunState.RUNNING)], [RUN], [], [], [], []]
    causes = (await api.get(f"/api/v2/dags/{DAG}/dagRuns/{RUN}/upstreamAssetEvents")).json()
    assert causes == {"asset_events": [events[1]], "total_entries": 1}
    assert events[5]["extra"] == {"from_trigger": True, "payload": "\0"}


async def test_a_trigger_is_shown_without_its_arguments(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    triggers = (await api.get("/api/v2/triggers")).json()["triggers"]
    wanted = {
        "id", "classpath", "queue", "created_date", "triggerer_id", "status", "restarts", "events", "last_event_at",
        "last_error", "watchers", "dag_id", "run_id", "task_id",
    }  # fmt: skip
    assert all(wanted <= set(trigger) and "kwargs" not in trigger for trigger in triggers)
    assert [set(watcher) for watcher in triggers[0]["watchers"]] == [{"name", "asset_id", "asset_name"}]
    assert (triggers[-1]["dag_id"], triggers[-1]["task_id"], triggers[-1]["watchers"]) == (DAG, "t_deferred", [])


async def test_a_dead_letter_shows_what_was_kept(api: httpx.AsyncClient, world: World) -> None:
    await fill(world)
    letters = (await api.get("/api/v2/deadLetters")).json()["dead_letters"]
    assert [letter["code"] for letter in letters] == ["size", "nan"], "newest first"
    one = (await api.get(f"/api/v2/deadLetters/{letters[1]['id']}")).json()
    assert one == {**letters[1], "raw": "/wA=", "raw_text": None, "payload": None}
    assert (one["raw_size"], one["raw_truncated"], one["has_payload"], one["state"]) == (2, False, False, "held")


async def test_a_job_tells_what_its_runners_take(api: httpx.AsyncClient, world: World) -> None:
    async with world.database.hot() as hot:
        job_id = await make_job(hot, job_type="triggerer")
    details = '{"runners": [{"key": "installed", "pid": 7, "rss_bytes": 1, "base_bytes": 1, "triggers": {"a.B": 2}}]}'
    await world.value("UPDATE job SET details = $2::json WHERE id = $1", job_id, details)
    [job] = (await api.get("/api/v2/jobs", params={"job_type": "triggerer", "is_alive": True})).json()["jobs"]
    assert (job["id"], job["state"], job["details"]) == (job_id, "running", json.loads(details))


@pytest.mark.parametrize("path", ["/api/v2/dags/nothing/dagRuns", "/api/v2/dags/nothing/dagRuns/~/taskInstances"])
async def test_an_empty_list_of_nothing_is_not_found(api: httpx.AsyncClient, path: str) -> None:
    assert (await api.get(path)).status_code == 404


def test_the_description_in_the_repository_is_current() -> None:
    kept = (ROOT / "openapi.json").read_text(encoding="utf-8")
    assert kept == description(), "run `make openapi`"


def test_names_of_operations_are_unique() -> None:
    ids = re.findall(r'"operationId": "(\w+)"', description())
    assert len(ids) == len(set(ids)) == len(operations())
