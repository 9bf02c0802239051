"""Posting and reading asset events."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.triggerer.world import World

EVENTS = "/api/v2/assets/events"


async def posted(api: httpx.AsyncClient, body: dict[str, Any], **headers: str) -> httpx.Response:
    """The answer to a POST of an event."""
    return await api.post(EVENTS, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def test_a_posted_event_is_answered_as_it_is_read(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset("orders")
    answer = await posted(api, {"asset_id": asset, "extra": {"b": [1, "\0", None], "a": {"ü": 1.5}}})

    assert answer.status_code == 200, answer.text
    event = answer.json()
    assert event["extra"] == {"b": [1, "\0", None], "a": {"ü": 1.5}, "from_rest_api": True}
    assert (event["name"], event["uri"], event["group"]) == ("orders", "x://orders", "asset")
    listed = (await api.get(EVENTS, params={"asset_id": asset})).json()
    assert listed == {"asset_events": [event], "total_entries": 1}


async def test_an_asset_is_named_by_id_name_or_uri(api: httpx.AsyncClient, world: World) -> None:
    await world.asset("other")
    asset = await world.asset("orders")
    every: dict[str, Any] = {"asset_id": asset, "name": "orders", "uri": "x://orders"}

    for names in (("asset_id",), ("name",), ("uri",), ("asset_id", "name", "uri")):
        answer = await posted(api, {name: every[name] for name in names})
        assert answer.status_code == 200, answer.text
        assert answer.json()["asset_id"] == asset


async def test_a_uri_may_be_spelt_as_in_a_pipeline_file(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset("bucket")
    await world.value("UPDATE asset SET uri = 's3://bucket/key?a=1&b=2' WHERE id = $1", asset)

    answer = await posted(api, {"uri": "S3://bucket/key/?b=2&a=1#part"})

    assert answer.status_code == 200, answer.text


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"name": "orders", "uri": "x://other"}, 409, "different assets"),
    ({"name": "asleep"}, 404, "not active"),
    ({"name": "orders", "uri": "x://nowhere"}, 404, "no asset with uri"),
    ({"name": "missing"}, 404, "no asset"),
    ({"asset_id": 2**62}, 404, "no asset"),
    ({"asset_id": 2**63}, 422, "less than"),
    ({"extra": {}}, 422, "name the asset"),
    ({"name": "orders", "extra": None}, 422, "dictionary"),
    ({"name": "orders", "unknown": 1}, 422, "not permitted"),
    ({"uri": "airflow://x"}, 422, "reserved"),
    ({"name": " "}, 404, "no asset"),
    ({"name": "p0\x006"}, 422, "it holds a NUL character"),
    ({"uri": "x://\0"}, 422, "it holds a NUL character"),
    ({"asset_id": True}, 422, "a valid integer"),
    ({"asset_id": 1.0}, 422, "a valid integer"),
]


async def test_refusals_say_why(api: httpx.AsyncClient, world: World) -> None:
    await world.asset("orders")
    await world.asset("other")
    await world.asset("asleep", active=False)

    for body, status, reason in REFUSED:
        answer = await posted(api, body)
        assert (answer.status_code, reason in answer.text) == (status, True), (body, answer.text)
    assert await world.value("SELECT count(*) FROM asset_event") == 0


async def test_an_idempotency_key_makes_one_event(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset("orders")
    await world.dag("consumer", asset)
    first = await posted(api, {"asset_id": asset, "extra": {"n": 1, "m": 2}}, idempotency_key="k1")
    again = await posted(api, {"name": "orders", "extra": {"m": 2, "n": 1}}, idempotency_key="k1")
    other = await posted(api, {"asset_id": asset, "extra": {"n": 2}}, idempotency_key="k1")

    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 409)
    assert again.json() == first.json()
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert "k1" in other.json()["detail"]
    assert await world.value("SELECT count(*) FROM demand") == 1


async def test_parallel_posts_of_one_key_make_one_event(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset()
    for number in range(10):
        pair = [posted(api, {"asset_id": asset}, idempotency_key=f"key {number}") for _ in range(2)]
        answers = await asyncio.gather(*pair)
        assert [answer.status_code for answer in answers] == [200, 200]
        assert len({answer.json()["id"] for answer in answers}) == 1
    assert await world.value("SELECT count(*) FROM asset_event") == 10


async def test_a_key_whose_event_was_deleted_is_a_conflict(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset()
    await posted(api, {"asset_id": asset}, idempotency_key="k")
    await world.value("DELETE FROM asset_event")

    answer = await posted(api, {"asset_id": asset}, idempotency_key="k")

    assert (answer.status_code, "deleted" in answer.text) == (409, True)


async def test_events_of_one_instant_stay_apart(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset()
    answers = await asyncio.gather(*(posted(api, {"asset_id": asset, "extra": {"same": 1}}) for _ in range(100)))
    ids = sorted(answer.json()["id"] for answer in answers)

    assert len(set(ids)) == 100
    await world.value("UPDATE asset_event SET timestamp = now()")
    pages = [(await api.get(EVENTS, params={"limit": 30, "offset": offset})).json() for offset in range(0, 100, 30)]
    assert [event["id"] for page in pages for event in page["asset_events"]] == ids
    assert {page["total_entries"] for page in pages} == {100}


async def test_paging_meets_old_events_once_while_new_ones_come(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset()
    await world.value(
        """
        WITH body AS (INSERT INTO event_body (extra) VALUES ('{}') RETURNING id)
        INSERT INTO asset_event (asset_id, body_id, origin, timestamp)
        SELECT $1, body.id, 'rest', now() FROM body, generate_series(1, 5000)
        """,
        asset,
    )
    old = {row["id"] for row in await world.fetch("SELECT id FROM asset_event")}
    seen: list[int] = []
    total, new = 5000, 0
    while len(seen) < total:
        page = (await api.get(EVENTS, params={"limit": 1000, "offset": len(seen)})).json()
        assert len(page["asset_events"]) <= 100, "the limit is capped"
        assert page["total_entries"] == 5000 + new
        total = page["total_entries"]
        seen += [event["id"] for event in page["asset_events"]]
        if new < 20:
            assert (await posted(api, {"asset_id": asset})).status_code == 200
            new += 1
    assert sorted(seen)[:5000] == sorted(old)
    assert len(seen) == len(set(seen)) == 5020


async def test_secrets_by_name_are_masked(api: httpx.AsyncClient, world: World) -> None:
    asset = await world.asset()
    answer = await posted(api, {"asset_id": asset, "extra": {"Password": "x", "in": [{"api_key": 1, "key": "k"}]}})

    shown = {"Password": "***", "in": [{"api_key": "***", "key": "k"}], "from_rest_api": True}
    assert answer.json()["extra"] == shown
    assert (await api.get(EVENTS)).json()["asset_events"][0]["extra"] == shown
    assert '"x"' in await world.value("SELECT extra::text FROM event_body")


async def test_a_name_follows_the_asset_that_has_it(api: httpx.AsyncClient, world: World) -> None:
    first = await world.asset("orders")
    assert (await posted(api, {"name": "orders"})).json()["asset_id"] == first
    await world.value("UPDATE asset SET is_active = false WHERE id = $1", first)
    for body in ({"name": "orders"}, {"asset_id": first}):
        answer = await posted(api, body)
        assert (answer.status_code, "not active" in answer.text) == (404, True)

    second = await world.value(
        "INSERT INTO asset (name, uri, group_name, extra, is_active, updated_at) "
        "VALUES ('orders', 'x://moved', 'asset', '{}', true, now()) RETURNING id"
    )
    assert (await posted(api, {"name": "orders"})).json()["asset_id"] == second
    for asset, active in ((second, False), (first, True)):
        await world.value("UPDATE asset SET is_active = $2 WHERE id = $1", asset, active)
    assert (await posted(api, {"name": "orders"})).json()["asset_id"] == first
