"""One contract for every message source: what ``watchers.triggers`` and DESIGN §1 and §3 promise of them all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from tests.contracts.harness import Break, SourceHarness
from tests.contracts.ledger import Driver, Ledger, driving, eventually
from tests.contracts.takeover import measure_take_over
from watchers.errors import SourceError
from watchers.triggers import TriggerEvent

pytestmark = pytest.mark.timeout(120)

#: What a body becomes: value and encoding. Falsy values are messages like any other.
DECODED: dict[bytes, tuple[object, str]] = {
    b'{"order": 7}': ({"order": 7}, "json"),
    b"0": (0, "json"),
    b"false": (False, "json"),
    b"null": (None, "json"),
    b"{}": ({}, "json"),
    b"[]": ([], "json"),
    b'""': ("", "json"),
    b"  ": ("  ", "text"),
    b'{"broken": ': ('{"broken": ', "text"),
    b"NaN": ("NaN", "text"),
    b"99999999999999999999999": ("99999999999999999999999", "text"),
    '"snowman ☃"'.encode(): ("snowman ☃", "json"),
    "plain ünïcode".encode(): ("plain ünïcode", "text"),
    b"[" * 300 + b"]" * 300: ("[" * 300 + "]" * 300, "text"),
}


def numbered(count: int, *, prefix: str = "m") -> list[bytes]:
    return [json.dumps(f"{prefix}{number}").encode() for number in range(count)]


def values(source: SourceHarness, events: list[TriggerEvent]) -> list[object]:
    return [source.body(event)[0] for event in events]


async def acknowledged(source: SourceHarness) -> None:
    """Until the broker counts nothing as unacknowledged."""
    await eventually(lambda: _is_empty(source))


async def _is_empty(source: SourceHarness) -> bool:
    return await source.backlog() == 0


async def test_each_message_is_one_event_with_an_identity(source: SourceHarness, ledger: Ledger) -> None:
    await source.send(numbered(25))
    async with driving(source.new_trigger(), ledger) as driver:
        events = await ledger.wait_for_events(25)
        await acknowledged(source)
    assert sorted(map(str, values(source, events))) == sorted(f"m{number}" for number in range(25))
    assert len({event.key for event in events}) == 25
    assert all(event.key for event in events)
    assert len({event.source for event in events}) == 1
    assert ledger.duplicates == []
    assert driver.status.errors == []


async def test_ten_at_once_are_ten_events(source: SourceHarness, ledger: Ledger) -> None:
    async with driving(source.new_trigger(), ledger):
        await source.send(numbered(10))
        events = await ledger.wait_for_events(10)
        await acknowledged(source)
    assert len(events) == 10
    assert {source.body(event)[0] for event in events} == {f"m{number}" for number in range(10)}


async def test_messages_sent_while_it_waits_arrive(source: SourceHarness, ledger: Ledger) -> None:
    async with driving(source.new_trigger(), ledger):
        for number, body in enumerate(numbered(4)):
            await source.send([body])
            await ledger.wait_for_events(number + 1)
        await acknowledged(source)
    assert values(source, ledger.events) == ["m0", "m1", "m2", "m3"]


async def test_bodies_are_decoded_without_loss(source: SourceHarness, ledger: Ledger) -> None:
    await source.send(list(DECODED))
    async with driving(source.new_trigger(), ledger):
        events = await ledger.wait_for_events(len(DECODED))
        await acknowledged(source)
    assert {event.raw: source.body(event) for event in events} == DECODED
    # Equality alone takes False for 0.
    assert {event.raw: type(source.body(event)[0]) for event in events} == {
        raw: type(value) for raw, (value, _) in DECODED.items()
    }
    json.dumps([event.payload for event in events], allow_nan=False)


async def test_binary_and_empty_bodies(source: SourceHarness, ledger: Ledger) -> None:
    sent = [b"\xff\xfe\x00binary\x80", b"\x00"] * source.binary_bodies + [b""] * source.empty_bodies
    await source.send([*sent, b'"end"'])
    async with driving(source.new_trigger(), ledger):
        events = await ledger.wait_for_events(len(sent) + 1)
        await acknowledged(source)
    decoded = {event.raw: source.body(event) for event in events}
    assert decoded[b'"end"'] == ("end", "json")
    if source.binary_bodies:
        assert decoded[b"\xff\xfe\x00binary\x80"] == ("//4AYmluYXJ5gA==", "base64")
        assert decoded[b"\x00"] == ("\x00", "text")
    if source.empty_bodies:
        assert decoded[b""] == ("", "text")


async def test_order_is_kept_within_a_lane(source: SourceHarness, ledger: Ledger) -> None:
    lanes = [f"lane{number % 3}" for number in range(30)]
    await source.send(numbered(30), lanes=lanes)
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(30)
        await acknowledged(source)
    arrived = [str(value) for value in values(source, ledger.events)]
    for lane in range(3):
        expected = [f"m{number}" for number in range(30) if number % 3 == lane]
        assert [value for value in arrived if value in expected] == expected
    assert len(arrived) == 30


async def test_order_within_a_lane_survives_a_crash_before_the_commit(source: SourceHarness, ledger: Ledger) -> None:
    await source.send(numbered(8), lanes=["one"] * 8)
    ledger.close_gate()
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_offer(1)
    await source.redeliver()
    ledger.open_gate()
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(8)
        await acknowledged(source)
    assert values(source, ledger.events) == [f"m{number}" for number in range(8)]


async def test_nothing_is_acknowledged_before_the_commit(source: SourceHarness, ledger: Ledger) -> None:
    ledger.close_gate()
    await source.send(numbered(5))
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_offer(1)
        for _ in range(10):
            assert await source.backlog() == 5
            await asyncio.sleep(0.05)
        ledger.open_gate()
        await ledger.wait_for_events(5)
        await acknowledged(source)
    assert ledger.duplicates == []


async def test_stopped_before_the_commit_gives_a_redelivery_with_the_same_identity(
    source: SourceHarness, ledger: Ledger
) -> None:
    ledger.close_gate()
    await source.send([b'"once"'])
    async with driving(source.new_trigger(), ledger):
        [first] = await ledger.wait_for_offer(1)
    assert await source.backlog() == 1
    await source.redeliver()
    ledger.open_gate()
    async with driving(source.new_trigger(), ledger):
        [again] = await ledger.wait_for_events(1)
        await acknowledged(source)
    assert (again.key, again.source) == (first.key, first.source)
    assert source.body(again) == ("once", "json")


async def test_crashed_between_commit_and_acknowledgement_gives_no_second_event(
    source: SourceHarness, ledger: Ledger
) -> None:
    await source.send(numbered(3))
    driver = Driver(source.new_trigger(), ledger, stop_after_commit=True)
    driver.start()
    await driver.wait_ended()
    assert await source.backlog() >= 1
    await source.redeliver()
    await source.send([b'"later"'])
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(4)
        await acknowledged(source)
    assert sorted(map(str, values(source, ledger.events))) == ["later", "m0", "m1", "m2"]


async def test_stopped_after_the_commit_leaves_nothing_behind(source: SourceHarness, ledger: Ledger) -> None:
    await source.send(numbered(3))
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(3)
        await acknowledged(source)
    await source.redeliver()
    await source.send([b'"later"'])
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(4)
        await acknowledged(source)
    assert ledger.duplicates == []


async def test_stopped_while_it_waits(source: SourceHarness, ledger: Ledger) -> None:
    async with driving(source.new_trigger(), ledger):
        await source.send([b"1"])
        await ledger.wait_for_events(1)
        await acknowledged(source)
    assert await source.backlog() == 0


async def test_a_store_that_fails_is_asked_again_and_loses_nothing(source: SourceHarness, ledger: Ledger) -> None:
    ledger.failures_left = 5
    await source.send(numbered(12))
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(12)
        await acknowledged(source)
    assert len(ledger.events) == 12
    assert ledger.failures_left == 0


@pytest.mark.parametrize("how", list(Break), ids=lambda how: how.value)
async def test_an_outage_is_reported_and_survived(source: SourceHarness, ledger: Ledger, how: Break) -> None:
    async with driving(source.new_trigger(), ledger) as driver:
        await source.send([b'"before"'])
        await ledger.wait_for_events(1)
        await acknowledged(source)
        await source.break_connection(how)
        await source.send(numbered(5))
        await eventually(lambda: driver.status.consecutive >= 2)
        assert await source.backlog() == 5
        await source.heal()
        await ledger.wait_for_events(6)
        await eventually(lambda: driver.status.consecutive == 0)
        await acknowledged(source)
        await source.send([b'"after"'])
        await ledger.wait_for_events(7)
        await acknowledged(source)
    assert len(ledger.events) == 7
    assert driver.status.recoveries >= 1


async def test_an_outage_while_a_message_is_in_hand(source: SourceHarness, ledger: Ledger) -> None:
    ledger.close_gate()
    await source.send(numbered(3))
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_offer(1)
        await source.break_connection(Break.RESET)
        ledger.open_gate()
        await ledger.wait_until(lambda: bool(ledger.events))
        await source.heal()
        await ledger.wait_for_events(3)
        await acknowledged(source)
        await source.send([b'"after"'])
        await ledger.wait_for_events(4)
        await acknowledged(source)
    assert sorted(map(str, values(source, ledger.events))) == ["after", "m0", "m1", "m2"]


async def test_started_during_an_outage(source: SourceHarness, ledger: Ledger) -> None:
    await source.break_connection(Break.REFUSE)
    await source.send([b'"early"'])
    async with driving(source.new_trigger(), ledger) as driver:
        await eventually(lambda: driver.status.consecutive >= 2)
        await source.heal()
        await ledger.wait_for_events(1)
        await acknowledged(source)
    assert values(source, ledger.events) == ["early"]


async def test_stopped_during_an_outage(source: SourceHarness, ledger: Ledger) -> None:
    async with driving(source.new_trigger(), ledger) as driver:
        await source.break_connection(Break.REFUSE)
        await eventually(lambda: driver.status.consecutive >= 1)
    await source.heal()
    await source.send([b"1"])
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(1)
        await acknowledged(source)


async def test_pauses_between_attempts_grow_and_end(source: SourceHarness, ledger: Ledger) -> None:
    await source.break_connection(Break.REFUSE)
    async with driving(source.new_trigger(), ledger) as driver:
        await eventually(lambda: driver.status.consecutive >= 5)
    times = driver.status.failure_times
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[-1] > gaps[0]
    assert sum(gaps) > 1


async def test_no_secret_of_the_connection_is_in_an_error(source: SourceHarness, ledger: Ledger) -> None:
    await source.break_connection(Break.REFUSE)
    async with driving(source.new_trigger(), ledger) as driver:
        await eventually(lambda: driver.status.errors)
    for error in driver.status.errors:
        assert "hunter2" not in f"{error!r} {error}"


async def test_a_deferred_task_takes_one_message(source: SourceHarness, ledger: Ledger) -> None:
    """Its trigger continues once after the first event, to acknowledge; what else it took would be lost."""
    if not getattr(source, "takes_one_for_a_task", False):
        pytest.skip(f"{source.name} acknowledges by position: a deferred task reads on from where it stands")
    await source.send(numbered(5))
    trigger = source.new_trigger()
    trigger.task_instance = object()
    async with driving(trigger, ledger):
        await ledger.wait_for_events(1)
    assert {len(batch) for batch in ledger.batches} == {1}
    await source.redeliver()
    async with driving(source.new_trigger(), ledger):
        await ledger.wait_for_events(5)
        await acknowledged(source)
    assert len(ledger.events) == 5


async def test_equal_triggers_have_equal_identities(source: SourceHarness) -> None:
    first, second = source.new_trigger(), source.new_trigger()
    assert first.serialize() == second.serialize()
    assert type(first)(**first.serialize()[1]).serialize() == first.serialize()


async def test_it_tells_how_much_waits(source: SourceHarness, ledger: Ledger) -> None:
    trigger = source.new_trigger()

    async def lag() -> int | None:
        try:
            return await trigger.lag()
        except SourceError:
            return None

    async with driving(trigger, ledger):
        await source.send([b'"first"'])
        await ledger.wait_for_events(1)
        await acknowledged(source)
        await eventually(lambda: _equal(lag, 0))
        ledger.close_gate()
        await source.send(numbered(3))
        await ledger.wait_for_offer(2)
        await source.send(numbered(40, prefix="later"))
        # What is in hand or was fetched before does not wait at the source.
        await eventually(lambda: _between(lag, 10, 43))
        ledger.open_gate()
        await ledger.wait_for_events(44)
        await acknowledged(source)
        await eventually(lambda: _equal(lag, 0))


async def _equal(ask: Callable[[], Awaitable[int | None]], wanted: int) -> bool:
    return await ask() == wanted


async def _between(ask: Callable[[], Awaitable[int | None]], low: int, high: int) -> bool:
    found = await ask()
    return found is not None and low <= found <= high


async def test_a_killed_owner_costs_no_more_than_is_said(source: SourceHarness) -> None:
    """New messages do not wait for those in flight, which come again within the visibility or session time."""
    found = await measure_take_over(source)
    print(f"\n{source.name}: {found}")
    assert found.new_message < 30
    assert found.in_flight < 45
