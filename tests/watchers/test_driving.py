from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from watchers.testing import drive, driving
from watchers.triggers import BaseTrigger, PositionUpdate, TriggerEvent, Yielded


class Counting(BaseTrigger):
    """Notes in ``steps`` what happens to it."""

    def __init__(self, *, last: int = 3, error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self.last = last
        self.error = error

    def serialize(self) -> tuple[str, dict[str, Any]]:
        raise NotImplementedError

    async def run(self) -> AsyncIterator[Yielded]:
        try:
            for number in range(self.last):
                yield [TriggerEvent(number), PositionUpdate(source="s", lanes={"0": number})]
                self.steps.append(f"acknowledged {number}")
            if self.error is not None:
                raise self.error
        finally:
            self.steps.append("closed")

    async def cleanup(self) -> None:
        self.steps.append("cleaned")


async def test_what_follows_a_yield_waits_for_the_store() -> None:
    trigger = Counting()

    async def store(together: Sequence[TriggerEvent | PositionUpdate]) -> None:
        event = together[0]
        assert isinstance(event, TriggerEvent)
        trigger.steps.append(f"stored {event.payload}")

    await drive(trigger, store=store)
    expected = [step for number in range(3) for step in (f"stored {number}", f"acknowledged {number}")]
    assert trigger.steps == [*expected, "closed", "cleaned"]


async def test_a_store_that_fails_closes_the_trigger_at_its_yield() -> None:
    trigger = Counting()

    def store(together: Sequence[Any]) -> None:
        raise RuntimeError("fenced")

    with pytest.raises(RuntimeError, match="fenced"):
        await drive(trigger, store=store)
    assert trigger.steps == ["closed", "cleaned"]


async def test_a_recording_has_events_and_positions() -> None:
    trigger = Counting()
    async with driving(trigger) as recording:
        await recording.until(3)
    assert recording.payloads == [0, 1, 2]
    assert recording.positions == {"s": {"0": 2}}


async def test_an_error_of_the_trigger_reaches_the_test() -> None:
    with pytest.raises(ValueError, match="why"):
        async with driving(Counting(error=ValueError("why"))) as recording:
            await recording.until(4)
