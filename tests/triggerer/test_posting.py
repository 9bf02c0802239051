"""Events posted by callers and made by tasks, on a real database."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.domain.specs import AssetKey
from app.services.events import (
    AssetNotFound,
    EventPoster,
    IdempotencyConflict,
    OutletRefused,
    OutletStored,
    PostedEvent,
    TaskOutletEvent,
    post_event,
    record_outlet_events,
)
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.triggerer.world import World
from tests.waiting import eventually


async def test_a_posted_event_is_marked_and_demanded(database: Database, notifier: Notifier, world: World) -> None:
    asset = await world.asset()
    await world.dag("d", asset)

    posted = await post_event(database, notifier, asset_id=asset, extra={"a": 1, "from_rest_api": False})

    assert posted.created
    row = (
        await world.fetch(
            "SELECT e.id, e.origin, e.timestamp, b.extra FROM asset_event e JOIN event_body b ON b.id = e.body_id"
        )
    )[0]
    assert (row["id"], row["origin"], row["timestamp"]) == (posted.event_id, "rest", posted.timestamp)
    assert json.loads(row["extra"]) == {"a": 1, "from_rest_api": True}
    assert await world.value("SELECT state FROM demand") == "pending"


async def test_the_same_request_answers_the_first_event_another_body_is_refused(
    database: Database, notifier: Notifier, world: World
) -> None:
    asset = await world.asset()
    first = await post_event(database, notifier, asset_id=asset, extra={"a": 1}, idempotency_key="k")

    again = await post_event(database, notifier, asset_id=asset, extra={"a": 1}, idempotency_key="k")

    assert (again.event_id, again.created) == (first.event_id, False)
    with pytest.raises(IdempotencyConflict, match="k"):
        await post_event(database, notifier, asset_id=asset, extra={"a": 2}, idempotency_key="k")
    assert await world.value("SELECT count(*) FROM asset_event") == 1


async def test_an_unknown_or_inactive_asset_is_told(database: Database, notifier: Notifier, world: World) -> None:
    for asset_id in (987, await world.asset(active=False)):
        with pytest.raises(AssetNotFound):
            await post_event(database, notifier, asset_id=asset_id, extra={}, idempotency_key="k")
    assert await world.value("SELECT count(*) FROM idempotency_key") == 0


async def test_many_callers_race_with_one_key(database: Database, notifier: Notifier, world: World) -> None:
    asset = await world.asset()
    async with EventPoster.open(database, notifier) as one, EventPoster.open(database, notifier) as two:
        answers = await asyncio.gather(
            *(
                poster.post(asset_id=asset, extra={"n": n % 2}, idempotency_key="k")
                for n in range(20)
                for poster in (one, two)
            ),
            return_exceptions=True,
        )

    posted = [answer for answer in answers if isinstance(answer, PostedEvent)]
    conflicts = [answer for answer in answers if isinstance(answer, IdempotencyConflict)]
    assert (len(posted), len(conflicts)) == (20, 20)
    assert len({answer.event_id for answer in posted}) == 1
    assert sum(answer.created for answer in posted) == 1
    assert await world.value("SELECT count(*) FROM asset_event") == 1


async def test_the_poster_serves_each_caller_its_own_answer(
    database: Database, notifier: Notifier, world: World
) -> None:
    assets = [await world.asset() for _ in range(3)]
    async with EventPoster.open(database, notifier) as poster:

        async def client(number: int) -> list[PostedEvent]:
            return [await poster.post(asset_id=assets[number % 3], extra={"client": number, "n": n}) for n in range(4)]

        broken = asyncio.create_task(poster.post(asset_id=assets[0], extra={"x": 1}, idempotency_key="nul\0"))
        answers = await asyncio.gather(*(client(number) for number in range(25)))
        with pytest.raises(Exception, match=r"invalid byte sequence"):
            await broken

    ids = [answer.event_id for each in answers for answer in each]
    assert len(set(ids)) == 100
    rows = {
        row["id"]: json.loads(row["extra"])
        for row in await world.fetch("SELECT e.id, b.extra FROM asset_event e JOIN event_body b ON b.id = e.body_id")
    }
    assert len(rows) == 100
    for number, each in enumerate(answers):
        assert [(rows[answer.event_id]["client"], rows[answer.event_id]["n"]) for answer in each] == [
            (number, n) for n in range(4)
        ]


async def test_a_post_under_way_when_the_poster_ends_is_stored_once(
    database: Database, notifier: Notifier, world: World
) -> None:
    asset = await world.asset()
    async with database.hot() as other:
        await other.execute("LOCK TABLE asset_event IN SHARE MODE")  # storing waits for the end of this
        closing = asyncio.Event()

        async def serve() -> PostedEvent:
            async with EventPoster.open(database, notifier) as poster:
                posting = asyncio.create_task(poster.post(asset_id=asset, extra={}))
                await eventually(lambda: _waiting_for_locks(world))
                closing.set()
            return await posting

        serving = asyncio.create_task(serve())
        await closing.wait()
    answer = await serving
    assert await world.fetch("SELECT id FROM asset_event") == [(answer.event_id,)]


async def _waiting_for_locks(world: World) -> int:
    return int(await world.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))


async def test_a_task_makes_events_of_its_outlets(database: Database, world: World) -> None:
    asset = await world.asset("out")
    await world.asset("asleep", active=False)
    await world.dag("d", asset)
    events = [
        TaskOutletEvent(
            asset=AssetKey(name=name, uri=f"x://{name}"),
            extra={"n": n},
            source_dag_id="a",
            source_task_id="t",
            source_run_id="r",
        )
        for n, name in enumerate(("out", "missing", "asleep", "out"))
    ]
    async with database.transaction() as connection:
        answers = await record_outlet_events(connection, events=events)

    assert [type(answer) for answer in answers] == [OutletStored, OutletRefused, OutletRefused, OutletStored]
    assert [answer.reason for answer in answers if isinstance(answer, OutletRefused)] == [
        "unknown asset",
        "inactive asset",
    ]
    rows = await world.fetch("SELECT origin, source_dag_id, source_task_id, source_run_id FROM asset_event")
    assert [tuple(row) for row in rows] == [("task", "a", "t", "r")] * 2
    assert await world.value("SELECT count(*) FROM demand") == 2


async def test_outlet_events_share_the_fate_of_their_transaction(database: Database, world: World) -> None:
    await world.asset("out")
    event = TaskOutletEvent(
        asset=AssetKey(name="out", uri="x://out"), extra={}, source_dag_id="a", source_task_id="t", source_run_id="r"
    )

    async def break_off() -> None:
        async with database.transaction() as connection:
            await record_outlet_events(connection, events=[event])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_off()
    assert await world.value("SELECT count(*) FROM asset_event") == 0
