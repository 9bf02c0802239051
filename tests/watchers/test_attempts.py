from __future__ import annotations

import asyncio

import pytest

from watchers import attempts
from watchers.attempts import until_one_succeeds


async def test_the_first_success_is_the_answer_and_pauses_lie_between_failures() -> None:
    answers = iter([None, None, "there"])
    pauses: list[float] = []

    async def attempt() -> str | None:
        return next(answers)

    def pause() -> float:
        pauses.append(0.01)
        return 0.01

    assert await until_one_succeeds(attempt, pause=pause) == "there"
    assert len(pauses) == 2


async def test_an_attempt_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "HANG_SECONDS", 0.05)
    hung = 0
    ended = 0

    async def attempt() -> str | None:
        nonlocal hung, ended
        if hung < 12:
            hung += 1
            try:
                await asyncio.sleep(3600)
            finally:
                ended += 1
        return "there"

    async with asyncio.timeout(30):
        assert await until_one_succeeds(attempt, pause=lambda: 0.01) == "there"
    assert hung == ended == 12


async def test_what_comes_too_late_is_handed_over_for_discarding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "HANG_SECONDS", 0.05)
    go, number, late = asyncio.Event(), 0, list[int]()

    async def attempt() -> int | None:
        nonlocal number
        number += 1
        mine = number
        if mine == 3:
            go.set()
        await go.wait()
        return mine

    async def discard(found: int) -> None:
        late.append(found)

    found = await until_one_succeeds(attempt, pause=lambda: 0.01, discard=discard)
    assert sorted([found, *late]) == [1, 2, 3]


async def test_what_an_attempt_raises_ends_it() -> None:
    async def attempt() -> str | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await until_one_succeeds(attempt, pause=lambda: 0.0)
