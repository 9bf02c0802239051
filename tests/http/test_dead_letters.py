"""Dead letters over the API: found, shown, made events of after all, deleted."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.domain.deliveries import Delivery, DeliveryItem, Refusal
from app.processes.host import Host
from app.processes.requeueing import Checker
from app.services.dead_letters import store_requeued
from app.services.events import store_batch
from tests.triggerer.world import World

pytestmark = pytest.mark.timeout(120)
LETTERS = "/api/v2/deadLetters"
STRICT = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


@dataclass(slots=True, kw_only=True)
class Place:
    """A trigger with two assets, one of them strict, and a DAG on each."""

    host: Host
    world: World
    lax: int
    strict: int
    trigger: int
    watchers: tuple[int, int]
    job: int
    epoch: int

    async def deliver(self, *items: DeliveryItem, raw_limit: int = 64) -> None:
        await store_batch(
            self.host.database,
            self.host.notifier,
            self.job,
            deliveries=[Delivery(trigger_id=self.trigger, epoch=self.epoch, items=items)],
            raw_limit=raw_limit,
        )

    async def refused_by_one(self, payload: Any = None, *, key: str | None = "k1") -> int:
        """A message that the strict asset refuses; the letter's id."""
        text = json.dumps({"no": "id"} if payload is None else payload)
        refusal = Refusal(code="schema", reason='payload: lacks "id"', watchers=(self.watchers[1],))
        await self.deliver(
            DeliveryItem(
                payload=text, watchers=(self.watchers[0],), key=key, source="s", refusals=(refusal,), raw=text.encode()
            )
        )
        return await self.last()

    async def refused_by_all(self, raw: bytes | None = b"\xff\x00", *, code: str = "nan", key: str | None = "k") -> int:
        """A message without payload; the letter's id."""
        refusal = Refusal(code=code, reason="payload.x: number that is not finite")
        await self.deliver(DeliveryItem(payload=None, key=key, source="s", refusals=(refusal,), raw=raw))
        return await self.last()

    async def last(self) -> int:
        return int(await self.world.value("SELECT max(id) FROM dead_letter"))

    async def events(self, asset: int) -> list[Any]:
        return await self.world.payloads(asset)


@pytest_asyncio.fixture
async def place(host: Host, world: World) -> AsyncIterator[Place]:
    lax, strict = await world.asset("lax"), await world.asset("strict")
    await world.dag("on_lax", lax)
    await world.dag("on_strict", strict)
    trigger = await world.trigger()
    watchers = (await world.watcher(lax, trigger), await world.watcher(strict, trigger, schema=STRICT))
    job = await world.job()
    epoch = await world.own(trigger, job)
    yield Place(
        host=host, world=world, lax=lax, strict=strict, trigger=trigger, watchers=watchers, job=job, epoch=epoch
    )


async def requeue(api: httpx.AsyncClient, letter: int, **body: Any) -> httpx.Response:
    return await api.post(f"{LETTERS}/{letter}/requeue", json=body)


async def test_an_edited_payload_becomes_the_event_of_the_asset_that_refused(
    api: httpx.AsyncClient, place: Place
) -> None:
    letter = await place.refused_by_one()

    still = await requeue(api, letter)
    wrong = await requeue(api, letter, payload={"id": "seven"})
    held = (await api.get(f"{LETTERS}/{letter}")).json()
    done = await requeue(api, letter, payload={"id": 7})

    assert (still.status_code, 'payload: lacks "id"' in still.json()["detail"]) == (422, True)
    assert wrong.status_code == 422
    assert 'payload.id: breaks type: "integer" (schema /properties/id/type)' in wrong.json()["detail"]
    assert (held["state"], held["event_ids"], held["asset_name"]) == ("held", [], "strict")
    assert (done.status_code, done.json()["created"], done.json()["dead_letters"]) == (200, 1, [])
    assert await place.events(place.strict) == [{"id": 7}]
    assert await place.events(place.lax) == [{"no": "id"}], "the other asset had its event"
    (event,) = done.json()["event_ids"]
    shown = (await api.get("/api/v2/assets/events", params={"asset_id": place.strict})).json()["asset_events"]
    assert [(each["id"], each["requeued_from"], each["extra"]) for each in shown] == [
        (event, letter, {"from_trigger": True, "payload": {"id": 7}})
    ]
    after = (await api.get(f"{LETTERS}/{letter}")).json()
    assert (after["state"], after["event_ids"]) == ("requeued", [event])
    assert after["requeued_at"] is not None
    assert await place.world.value("SELECT count(*) FROM demand WHERE dag_id = 'on_strict' AND state = 'pending'") == 1
    row = (await place.world.fetch("SELECT * FROM asset_event WHERE id = $1", event))[0]
    assert (row["origin"], row["source"], row["key"], row["trigger_id"]) == ("trigger", "s", "k1", place.trigger)


async def test_a_later_redelivery_makes_neither_event_nor_letter(api: httpx.AsyncClient, place: Place) -> None:
    letter = await place.refused_by_one()
    assert (await requeue(api, letter, payload={"id": 7})).status_code == 200

    await place.refused_by_one()
    both = DeliveryItem(payload='{"id": 1}', watchers=place.watchers, key="k1", source="s")
    await place.deliver(both)

    assert await place.events(place.strict) == [{"id": 7}]
    assert len(await place.events(place.lax)) == 1
    assert await place.world.value("SELECT count(*) FROM dead_letter") == 1


async def test_an_event_that_the_message_has_made_meanwhile_is_not_made_again(
    api: httpx.AsyncClient, place: Place
) -> None:
    letter = await place.refused_by_one()
    await place.deliver(DeliveryItem(payload='{"id": 1}', watchers=place.watchers, key="k1", source="s"))
    event = await place.world.value("SELECT id FROM asset_event WHERE asset_id = $1", place.strict)

    done = await requeue(api, letter, payload={"id": 7})

    assert done.json() == {"id": letter, "event_ids": [event], "created": 0, "dead_letters": []}
    assert await place.events(place.strict) == [{"id": 1}]
    assert await place.world.value("SELECT requeued_from FROM asset_event WHERE id = $1", event) is None


async def test_a_letter_of_the_trigger_goes_to_every_asset_that_takes_it(api: httpx.AsyncClient, place: Place) -> None:
    letter = await place.refused_by_all()

    refused = await requeue(api, letter)
    done = (await requeue(api, letter, payload={"id": 1})).json()

    assert refused.status_code == 422
    assert "number that is not finite (nan), so it needs another payload" in refused.json()["detail"]
    assert (done["created"], done["dead_letters"]) == (2, [])
    assert (await place.events(place.lax), await place.events(place.strict)) == ([{"id": 1}], [{"id": 1}])
    assert await place.world.value("SELECT count(*) FROM event_body") == 1


async def test_an_asset_that_refuses_what_others_take_gets_a_letter_of_its_own(
    api: httpx.AsyncClient, place: Place
) -> None:
    letter = await place.refused_by_all()

    done = (await requeue(api, letter, payload=None)).json()

    assert done["created"] == 1
    assert await place.events(place.lax) == [None]
    (new,) = done["dead_letters"]
    shown = (await api.get(f"{LETTERS}/{new}")).json()
    assert (shown["asset_name"], shown["code"], shown["payload"], shown["has_payload"]) == (
        "strict", "schema", None, True,
    )  # fmt: skip
    assert (shown["key"], shown["state"], shown["raw"]) == ("k", "held", base64.b64encode(b"\xff\x00").decode())


@pytest.mark.parametrize("key", ["k1", None], ids=["with identity", "without"])
async def test_requests_at_the_same_time_make_one_event(api: httpx.AsyncClient, place: Place, key: str | None) -> None:
    letter = await place.refused_by_one(key=key)

    answers = await asyncio.gather(*(requeue(api, letter, payload={"id": n}) for n in range(6)))

    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409, 409]
    assert len(await place.events(place.strict)) == 1
    won = next(answer.json() for answer in answers if answer.status_code == 200)
    lost = next(answer.json()["detail"] for answer in answers if answer.status_code == 409)
    assert f"Dead letter {letter} was requeued at " in lost
    assert lost.endswith(f"its events: {won['event_ids'][0]}.")


async def test_what_was_not_kept_whole_needs_a_payload(api: httpx.AsyncClient, place: Place) -> None:
    letter = await place.refused_by_all(b"x" * 100, code="size")

    shown = (await api.get(f"{LETTERS}/{letter}")).json()
    refused = await requeue(api, letter)
    done = await requeue(api, letter, payload={"id": 1})

    assert (shown["raw_size"], shown["raw_truncated"], shown["raw_text"]) == (100, True, "x" * 64)
    assert base64.b64decode(shown["raw"]) == b"x" * 64
    assert refused.status_code == 409
    assert f"Only 64 of 100 bytes of the message of dead letter {letter} were kept" in refused.json()["detail"]
    assert (done.status_code, done.json()["created"]) == (200, 2)


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"\xff\x00", None), ("größe\n".encode(), "größe\n"), (b"nul\x00", None), (b"", ""), (b"a" + "€".encode() * 30,
     "a" + "€" * 21)],
    ids=["binary", "text", "control", "empty", "cut within a character"],
)  # fmt: skip
async def test_bytes_that_are_text_are_shown_as_text(
    api: httpx.AsyncClient, place: Place, raw: bytes, text: str | None
) -> None:
    shown = (await api.get(f"{LETTERS}/{await place.refused_by_all(raw)}")).json()
    assert (shown["raw_text"], base64.b64decode(shown["raw"])) == (text, raw[:64])


async def test_a_size_over_the_limit_names_both_numbers(api: httpx.AsyncClient, place: Place) -> None:
    letter = await place.refused_by_one()
    text = "x" * 1_048_570
    for path, body in (
        (f"{LETTERS}/{letter}/requeue", {"payload": {"id": 1, "t": text}}),
        ("/api/v2/assets/events", {"asset_id": place.lax, "extra": {"id": 1, "t": text}}),
        ("/api/v2/dags/on_lax/dagRuns", {"logical_date": None, "conf": {"id": 1, "t": text}}),
    ):
        answer = await api.post(path, json=body)
        assert answer.status_code == 413, answer.text[:300]
        assert "1048585 bytes of JSON text; the limit is 1048576" in answer.json()["detail"]
        answer = await api.post(path, content=b" " * 3_000_000, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert answer.json()["detail"] == "the body has 3000000 bytes; the limit is 2162688 bytes"
    assert (await api.get(f"{LETTERS}/{letter}")).json()["state"] == "held"


async def test_a_payload_that_nothing_can_hold_is_refused(api: httpx.AsyncClient, place: Place) -> None:
    letter = await place.refused_by_one()
    for payload in ('{"id": NaN}', '{"id": 1, "t": "\\ud800"}', '{"id": 36893488147419103232}'):
        content = f'{{"payload": {payload}}}'
        headers = {"Content-Type": "application/json"}
        answer = await api.post(f"{LETTERS}/{letter}/requeue", content=content, headers=headers)
        assert (answer.status_code, "payload." in answer.text) == (422, True), answer.text
    assert await place.events(place.strict) == []


async def test_what_is_gone_is_told(api: httpx.AsyncClient, place: Place) -> None:
    letter = await place.refused_by_one()
    of_all = await place.refused_by_all()
    about_position = await place.refused_by_all(code="position", key="p")
    world = place.world

    assert (await requeue(api, 10**6)).status_code == 404
    answer = await requeue(api, about_position, payload=1)
    assert (answer.status_code, "about a position" in answer.json()["detail"]) == (409, True)

    await world.value("UPDATE asset SET is_active = false WHERE id = $1", place.strict)
    answer = await requeue(api, letter, payload={"id": 1})
    assert (answer.status_code, "is gone, inactive" in answer.json()["detail"]) == (409, True)
    await world.value("DELETE FROM asset WHERE id = $1", place.strict)
    answer = await requeue(api, letter, payload={"id": 1})
    assert (answer.status_code, "is gone, inactive" in answer.json()["detail"]) == (409, True), "not to other assets"

    await world.value("DELETE FROM asset_watcher")
    await world.value("DELETE FROM trigger")
    for each in (letter, of_all):
        answer = await requeue(api, each, payload={"id": 1})
        assert (answer.status_code, "The trigger of dead letter" in answer.json()["detail"]) == (409, True)
    assert len(await place.events(place.lax)) == 1


async def test_filters_decide_again_and_a_slow_one_is_given_up(
    api: httpx.AsyncClient, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await place.refused_by_one()
    rewrite = "UPDATE asset_watcher SET when_expression = $1, payload_schema = $2 WHERE asset_id = $3"
    await place.world.value(rewrite, "id > `5`", None, place.strict)
    answer = await requeue(api, letter, payload={"id": 1})
    assert answer.status_code == 422
    assert "no watcher's filter (when=) lets the payload pass" in answer.json()["detail"]
    await place.world.value(rewrite, "length(id) > `5`", None, place.strict)
    assert "when='length(id) > `5`' failed" in (await requeue(api, letter, payload={"id": 1})).json()["detail"]

    slow = json.dumps({"properties": {"id": {"pattern": "^(a+)+$"}}})
    await place.world.value(rewrite, None, slow, place.strict)
    checker_open = Checker.open
    monkeypatch.setattr("app.processes.requeueing.Checker.open", lambda _limit: checker_open(0.5))
    answer = await requeue(api, letter, payload={"id": "a" * 60 + "!"})
    assert answer.status_code == 422
    assert "took longer than" in answer.json()["detail"]
    assert (await requeue(api, letter, payload={"id": "a"})).json()["created"] == 1


async def test_watchers_that_change_between_check_and_store_are_asked_again(
    api: httpx.AsyncClient, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await place.refused_by_one()
    changes: list[None] = []

    async def after_a_change(*arguments: Any, **options: Any) -> Any:
        if not changes:
            changes.append(None)
            await place.world.value("UPDATE asset_watcher SET payload_schema = '{\"not\":{}}' WHERE asset_id = $1",
                                    place.strict)  # fmt: skip
        return await store_requeued(*arguments, **options)

    monkeypatch.setattr("app.processes.requeueing.store_requeued", after_a_change)
    answer = await requeue(api, letter, payload={"id": 1})
    assert (answer.status_code, "breaks not: {}" in answer.json()["detail"]) == (422, True)
    assert await place.events(place.strict) == []


async def test_lists_are_filtered_and_ordered(api: httpx.AsyncClient, place: Place) -> None:
    first, second = await place.refused_by_one(), await place.refused_by_all()
    assert (await requeue(api, first, payload={"id": 1})).status_code == 200
    hour = datetime.now(UTC) - timedelta(hours=1)
    await place.world.value("UPDATE dead_letter SET created_at = created_at - interval '1 day' WHERE id = $1", first)

    async def found(**parameters: Any) -> list[int]:
        answer = await api.get(LETTERS, params=parameters)
        assert answer.status_code == 200, answer.text
        assert answer.json()["total_entries"] == len(answer.json()["dead_letters"])
        return [each["id"] for each in answer.json()["dead_letters"]]

    assert await found() == [second, first]
    assert await found(order_by="id") == [first, second]
    assert await found(order_by="-code") == [first, second]
    for parameters in (
        {"asset_id": place.strict},
        {"asset_name": "strict"},
        {"code": "schema"},
        {"key": "k1"},
        {"state": "requeued"},
        {"created_at_lt": hour.isoformat()},
        {"source": "s", "trigger_id": place.trigger, "state": "requeued"},
    ):
        assert await found(**parameters) == [first], parameters
    assert await found(created_at_gte=hour.isoformat()) == [second]
    assert await found(source="other") == []
    assert (await api.get(LETTERS, params={"state": "lost"})).status_code == 422
    assert (await api.get(LETTERS, params={"created_at_lt": "2026-01-01T00:00:00"})).status_code == 422
    assert (await api.get(LETTERS, params={"order_by": "raw"})).status_code == 400
    every = (await api.get(LETTERS)).json()["dead_letters"]
    assert all(not {"raw", "raw_text", "payload"} & each.keys() for each in every)


async def test_several_are_requeued_each_by_itself(api: httpx.AsyncClient, place: Place) -> None:
    good = [await place.refused_by_one({"id": n}, key=str(n)) for n in range(3)]
    bad = await place.refused_by_one()
    truncated = await place.refused_by_all(b"x" * 100)

    by_ids = (await api.post(f"{LETTERS}/requeue", json={"ids": [bad, good[0], truncated, good[0], 10**6]})).json()
    rest = (await api.post(f"{LETTERS}/requeue", json={"filter": {"code": "schema"}, "limit": 2})).json()

    assert [(each["id"], each["status"]) for each in by_ids["letters"]] == [
        (bad, 422), (good[0], 200), (truncated, 409), (10**6, 404),
    ]  # fmt: skip
    assert (by_ids["done"], by_ids["failed"]) == (1, 3)
    assert 'lacks "id"' in by_ids["letters"][0]["detail"]
    assert [(each["id"], each["status"], each["created"]) for each in rest["letters"]] == [
        (good[1], 200, 1), (good[2], 200, 1),
    ]  # fmt: skip
    assert await place.events(place.strict) == [{"id": 0}, {"id": 1}, {"id": 2}]
    bodies: list[dict[str, Any]] = [
        {},
        {"ids": []},
        {"ids": [1], "filter": {}},
        {"filter": {"color": "red"}},
        {"ids": list(range(101))},
    ]
    for body in bodies:
        for action in ("requeue", "delete"):
            assert (await api.post(f"{LETTERS}/{action}", json=body)).status_code == 422, body


async def test_letters_are_deleted_alone_and_together(api: httpx.AsyncClient, place: Place) -> None:
    one, two, three = [await place.refused_by_one(key=str(n)) for n in range(3)]
    assert (await requeue(api, three, payload={"id": 1})).status_code == 200

    assert (await api.delete(f"{LETTERS}/{one}")).status_code == 204
    assert (await api.delete(f"{LETTERS}/{one}")).status_code == 404
    assert (await requeue(api, one, payload={"id": 1})).status_code == 404
    done = (await api.post(f"{LETTERS}/delete", json={"ids": [one, two]})).json()
    assert [(each["id"], each["status"]) for each in done["letters"]] == [(one, 404), (two, 204)]
    assert (done["done"], done["failed"]) == (1, 1)
    done = (await api.post(f"{LETTERS}/delete", json={"filter": {"state": "requeued"}})).json()
    assert [each["id"] for each in done["letters"]] == [three]
    assert await place.world.value("SELECT count(*) FROM dead_letter") == 0
    assert len(await place.events(place.strict)) == 1, "the event outlives its letter"
