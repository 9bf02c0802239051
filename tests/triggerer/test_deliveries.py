"""Storing what triggers deliver, on a real database."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.services.events import Delivery, DeliveryItem, Position, Refusal, Verdict, store_batch
from app.store.database import Database
from app.store.wakeups import Notifier
from tests.triggerer.world import World


def item(payload: object, *watchers: int, key: str | None = None, source: str = "s") -> DeliveryItem:
    return DeliveryItem(payload=json.dumps(payload), watchers=watchers, key=key, source=source)


async def test_events_are_stored_in_order_with_demand(database: Database, notifier: Notifier, world: World) -> None:
    asset = await world.asset()
    await world.dag("one", asset)
    await world.dag("two", asset)
    await world.dag("asleep", asset, paused=True)
    await world.dag("gone", asset, active=False)
    trigger = await world.trigger()
    watcher = await world.watcher(asset, trigger)
    job = await world.job()
    epoch = await world.own(trigger, job)
    delivery = Delivery(
        trigger_id=trigger,
        epoch=epoch,
        items=tuple(item(n, watcher, key=str(n)) for n in range(5)),
        positions=(Position(source="s", lane="0", position="[4]"),),
    )

    (answer,) = await store_batch(database, notifier, job, deliveries=[delivery])

    assert (answer.verdict, answer.events, answer.duplicates) == (Verdict.STORED, 5, 0)
    assert await world.payloads(asset) == [0, 1, 2, 3, 4]
    demand = await world.fetch("SELECT dag_id, arrival, state, reason, event_id FROM demand ORDER BY dag_id, arrival")
    for dag_id, state in (("one", "pending"), ("two", "pending"), ("asleep", "skipped")):
        rows = [row for row in demand if row["dag_id"] == dag_id]
        assert [row["arrival"] for row in rows] == [1, 2, 3, 4, 5]
        assert {row["state"] for row in rows} == {state}
        assert [row["event_id"] for row in rows] == sorted(row["event_id"] for row in rows)
    assert len(demand) == 15
    assert all(row["reason"] for row in demand if row["dag_id"] == "asleep")
    flags = dict(await world.fetch("SELECT dag_id, has_demand FROM dag"))
    assert flags == {"one": True, "two": True, "asleep": False, "gone": False}
    assert await world.value("SELECT position::text FROM source_position") == "[4]"
    row = (await world.fetch("SELECT events, duplicates, last_event_at FROM trigger"))[0]
    assert (row[0], row[1]) == (5, 0)
    assert row[2] is not None


async def test_a_redelivery_is_a_duplicate_also_within_one_delivery(
    database: Database, notifier: Notifier, world: World
) -> None:
    asset, other = await world.asset(), await world.asset()
    trigger = await world.trigger()
    watchers = (await world.watcher(asset, trigger), await world.watcher(other, trigger))
    job = await world.job()
    epoch = await world.own(trigger, job)
    twice = Delivery(
        trigger_id=trigger, epoch=epoch, items=(item("a", *watchers, key="k"), item("b", *watchers, key="k"))
    )

    (first,) = await store_batch(database, notifier, job, deliveries=[twice])
    (again,) = await store_batch(database, notifier, job, deliveries=[twice])

    assert (first.events, first.duplicates) == (2, 2)
    assert (again.events, again.duplicates) == (0, 4)
    assert await world.payloads(asset) == ["a"]
    assert await world.payloads(other) == ["a"]
    assert await world.value("SELECT count(*) FROM event_body") == 1


async def test_two_owners_storing_one_message_make_one_event(
    database: Database, notifier: Notifier, world: World
) -> None:
    """Triggers of different tuning on one queue: the identity belongs to the message, not to the trigger."""
    asset = await world.asset()
    await world.dag("d", asset)
    jobs, deliveries = [], []
    for _ in range(2):
        trigger = await world.trigger()
        watcher = await world.watcher(asset, trigger)
        jobs.append(await world.job())
        epoch = await world.own(trigger, jobs[-1])
        items = tuple(item(n, watcher, key=str(n)) for n in range(50))
        deliveries.append(Delivery(trigger_id=trigger, epoch=epoch, items=items))

    answers = await asyncio.gather(
        *(store_batch(database, notifier, job, deliveries=[each]) for job, each in zip(jobs, deliveries, strict=True))
    )

    assert sum(answer[0].events for answer in answers) == 50
    assert sum(answer[0].duplicates for answer in answers) == 50
    assert sorted(await world.payloads(asset)) == list(range(50))


async def test_a_stale_owner_changes_nothing(database: Database, notifier: Notifier, world: World) -> None:
    asset = await world.asset()
    await world.dag("d", asset)
    mine, lost = await world.trigger(), await world.trigger()
    watchers = {each: await world.watcher(asset, each, name=str(each)) for each in (mine, lost)}
    job, peer = await world.job(), await world.job()
    epochs = {each: await world.own(each, job) for each in (mine, lost)}
    await world.own(lost, peer)
    deliveries = [
        Delivery(
            trigger_id=each,
            epoch=epochs[each],
            items=(
                item(each, watchers[each], key=f"{each}"),
                DeliveryItem(payload=None, refusals=(Refusal(code="nan", reason="r"),)),
            ),
            positions=(Position(source="s", lane="0", position="1"),),
        )
        for each in (lost, mine)
    ]

    answers = await store_batch(database, notifier, job, deliveries=deliveries)

    assert [answer.verdict for answer in answers] == [Verdict.FENCED, Verdict.STORED]
    assert await world.payloads(asset) == [mine]
    assert await world.letters(lost) == []
    assert [row["trigger_id"] for row in await world.fetch("SELECT trigger_id FROM source_position")] == [mine]
    assert await world.value("SELECT events + duplicates + refused FROM trigger WHERE id = $1", lost) == 0


async def test_an_old_epoch_of_the_same_owner_is_fenced(database: Database, notifier: Notifier, world: World) -> None:
    asset = await world.asset()
    trigger = await world.trigger()
    watcher = await world.watcher(asset, trigger)
    job = await world.job()
    old = await world.own(trigger, job)
    new = await world.own(trigger, job)
    deliveries = [Delivery(trigger_id=trigger, epoch=each, items=(item(each, watcher),)) for each in (old, new)]

    answers = await store_batch(database, notifier, job, deliveries=deliveries)

    assert [answer.verdict for answer in answers] == [Verdict.FENCED, Verdict.STORED]
    assert await world.payloads(asset) == [new]


@pytest.mark.parametrize("poison", ["{nonsense", '"\ud800"'])
async def test_what_the_database_refuses_becomes_a_dead_letter_and_the_rest_is_stored(
    database: Database, notifier: Notifier, world: World, poison: str
) -> None:
    asset = await world.asset()
    await world.dag("d", asset)
    triggers = [await world.trigger() for _ in range(2)]
    job = await world.job()
    deliveries = []
    for trigger in triggers:
        watcher = await world.watcher(asset, trigger, name=str(trigger))
        epoch = await world.own(trigger, job)
        items = [item([trigger, n], watcher, key=f"{trigger}/{n}") for n in range(7)]
        deliveries.append(Delivery(trigger_id=trigger, epoch=epoch, items=tuple(items)))
    broken = [*deliveries[0].items]
    broken[3] = DeliveryItem(payload=poison, watchers=broken[3].watchers, key="bad\0key", source="s")
    deliveries[0] = Delivery(trigger_id=triggers[0], epoch=deliveries[0].epoch, items=tuple(broken))

    answers = await store_batch(database, notifier, job, deliveries=deliveries)

    assert [(answer.events, answer.dead_letters) for answer in answers] == [(6, 1), (7, 0)]
    good = [[triggers[0], n] for n in range(7) if n != 3] + [[triggers[1], n] for n in range(7)]
    assert await world.payloads(asset) == good
    (letter,) = await world.letters(triggers[0])
    assert letter["code"] == "store"
    assert letter["raw"] is not None
    assert await world.value("SELECT array_agg(arrival ORDER BY arrival) FROM demand") == list(range(1, 14))
    assert (await store_batch(database, notifier, job, deliveries=deliveries))[0].duplicates == 6
    assert len(await world.letters(triggers[0])) == 1


async def test_a_broken_position_does_not_take_the_events_with_it(
    database: Database, notifier: Notifier, world: World
) -> None:
    asset = await world.asset()
    trigger = await world.trigger()
    watcher = await world.watcher(asset, trigger)
    job = await world.job()
    epoch = await world.own(trigger, job)
    places = (Position(source="s", lane="good", position="1"), Position(source="s", lane="bad\0", position="1"))
    delivery = Delivery(trigger_id=trigger, epoch=epoch, items=(item(1, watcher),), positions=places)

    (answer,) = await store_batch(database, notifier, job, deliveries=[delivery])

    assert (answer.events, answer.dead_letters) == (1, 1)
    assert [row["lane"] for row in await world.fetch("SELECT lane FROM source_position")] == ["good"]


async def test_refusals_are_kept_once_with_their_raw_message_cut(
    database: Database, notifier: Notifier, world: World
) -> None:
    asset = await world.asset()
    trigger = await world.trigger()
    watcher = await world.watcher(asset, trigger)
    job = await world.job()
    epoch = await world.own(trigger, job)
    whole = DeliveryItem(
        payload=None, key="k", source="s", raw=b"x" * 100, refusals=(Refusal(code="size", reason="too large"),)
    )
    partly = DeliveryItem(
        payload="1", key="p", source="s", refusals=(Refusal(code="filter", reason="it raised", watchers=(watcher,)),)
    )
    delivery = Delivery(trigger_id=trigger, epoch=epoch, items=(whole, partly, item(2)))

    (answer,) = await store_batch(database, notifier, job, deliveries=[delivery], raw_limit=10)
    (again,) = await store_batch(database, notifier, job, deliveries=[delivery], raw_limit=10)

    assert (answer.events, answer.dead_letters) == (0, 2)
    assert (again.events, again.dead_letters) == (0, 0)
    letters = {row["code"]: row for row in await world.letters(trigger)}
    assert (letters["size"]["raw"], letters["size"]["raw_size"], letters["size"]["asset_id"]) == (b"x" * 10, 100, None)
    assert (letters["filter"]["asset_id"], letters["filter"]["payload"]) == (asset, "1")
    assert letters["size"]["payload"] is None
    assert await world.value("SELECT refused FROM trigger") == 2


async def test_a_watcher_removed_meanwhile_makes_no_event(database: Database, notifier: Notifier, world: World) -> None:
    asset, inactive = await world.asset(), await world.asset(active=False)
    trigger = await world.trigger()
    watcher, other = await world.watcher(asset, trigger), await world.watcher(inactive, trigger)
    job = await world.job()
    epoch = await world.own(trigger, job)
    await world.value("DELETE FROM asset_watcher WHERE id = $1", watcher)

    delivery = Delivery(trigger_id=trigger, epoch=epoch, items=(item(1, watcher, other),))
    (answer,) = await store_batch(database, notifier, job, deliveries=[delivery])

    assert (answer.verdict, answer.events) == (Verdict.STORED, 0)
    assert await world.value("SELECT count(*) FROM asset_event") == 0


async def test_nothing_is_known_twice_after_a_crash_between_commit_and_answer(
    database: Database, notifier: Notifier, world: World
) -> None:
    """The runner never heard that its message was stored; the next owner gets it again from the broker."""
    asset = await world.asset()
    await world.dag("d", asset)
    trigger = await world.trigger()
    watcher = await world.watcher(asset, trigger)
    first, second = await world.job(), await world.job()
    epoch = await world.own(trigger, first)
    await store_batch(
        database,
        notifier,
        first,
        deliveries=[Delivery(trigger_id=trigger, epoch=epoch, items=(item(1, watcher, key="m"),))],
    )

    epoch = await world.own(trigger, second)
    (answer,) = await store_batch(
        database,
        notifier,
        second,
        deliveries=[Delivery(trigger_id=trigger, epoch=epoch, items=(item(1, watcher, key="m"),))],
    )

    assert (answer.verdict, answer.events, answer.duplicates) == (Verdict.STORED, 0, 1)
    assert await world.value("SELECT count(*) FROM demand") == 1


async def test_an_asset_that_gets_the_event_by_another_watcher_has_no_letter(
    database: Database, notifier: Notifier, world: World
) -> None:
    asset, strict = await world.asset(), await world.asset()
    trigger = await world.trigger()
    lax, fussy, other = [await world.watcher(asset, trigger, name=name) for name in ("lax", "fussy", "fussier")]
    both = [await world.watcher(strict, trigger, name=name) for name in ("one", "two")]
    job = await world.job()
    epoch = await world.own(trigger, job)
    refusals = (
        Refusal(code="schema", reason="rule 0", watchers=(fussy, both[0])),
        Refusal(code="schema", reason="rule 1", watchers=(other, both[1])),
    )
    message = DeliveryItem(payload="1", watchers=(lax,), source="s", refusals=refusals, raw=b"one")

    (answer,) = await store_batch(
        database, notifier, job, deliveries=[Delivery(trigger_id=trigger, epoch=epoch, items=(message,))]
    )

    assert (answer.events, answer.dead_letters) == (1, 1)
    (letter,) = await world.letters(trigger)
    assert (letter["asset_id"], letter["reason"], letter["raw"], letter["state"]) == (strict, "rule 0", b"one", "held")
