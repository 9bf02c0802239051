"""How triggers are shared: pure decisions, and a fleet of triggerers that follow them."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.processes.triggerer.rebalancing import (
    HOLD_BACK,
    HOLD_BACK_FOR_NOBODY,
    STEADY,
    Pool,
    Sharing,
    fair_targets,
    may_take,
    pools_of,
)
from app.services.shares import Member, Shares


def pool(**values: int) -> Pool:
    return Pool(**{"queues": frozenset({None}), "target": 0, "held": 0, "free": 0, "lacking": 0, **values})  # type: ignore[arg-type]


@given(st.dictionaries(st.integers(1, 9), st.integers(0, 2000), min_size=1), st.integers(0, 5000))
def test_targets_are_even_and_enough(rooms: dict[int, int], total: int) -> None:
    targets = fair_targets(rooms, total)
    assert targets.keys() == rooms.keys()
    assert all(target <= rooms[each] for each, target in targets.items())
    assert sum(targets.values()) >= min(total, sum(rooms.values()))
    not_full = [target for each, target in targets.items() if target < rooms[each]]
    assert len(set(not_full)) <= 1
    assert max(targets.values()) <= max(not_full, default=10**9)


def test_a_small_one_is_filled_and_the_others_share_the_rest() -> None:
    assert fair_targets({1: 1000, 2: 1000}, 1000) == {1: 500, 2: 500}
    assert fair_targets({1: 100, 2: 1000, 3: 1000}, 1000) == {1: 100, 2: 450, 3: 450}
    assert fair_targets({1: 1000}, 5000) == {1: 1000}
    assert fair_targets({1: 1000, 2: 1000}, 1) == {1: 1, 2: 1}


def test_pools_are_what_the_same_triggerers_serve() -> None:
    shares = Shares(
        members=(
            Member(job_id=1, capacity=100, queues=frozenset({"a", "b"}), held={"a": 10}),
            Member(job_id=2, capacity=100, queues=frozenset({"b", "c"}), held={"c": 4}),
            Member(job_id=3, capacity=100, held={None: 7}),
        ),
        free={"a": 1, "b": 6, "c": 2, None: 3, "nobody's": 9},
    )
    found = {tuple(sorted(map(str, each.queues))): each for each in pools_of(1, shares)}
    assert set(found) == {("a",), ("b",)}
    assert (found["a",].target, found["a",].held, found["a",].free) == (11, 10, 1)
    assert (found["b",].target, found["b",].lacking) == (3, 3)
    assert found["b",].names == ["b"]
    (plain,) = pools_of(3, shares)
    assert (plain.names, plain.target, plain.free) == (None, 10, 3)
    assert pools_of(9, shares) == []


def test_many_small_queues_of_the_same_triggerers_are_shared_as_one() -> None:
    queues = [f"q{number}" for number in range(10)]
    members = tuple(Member(job_id=each, capacity=100, queues=frozenset(queues)) for each in (1, 2))
    (found,) = pools_of(1, Shares(members=members, free=dict.fromkeys(queues, 1)))
    assert (found.target, may_take(found, room=100)) == (5, 5)


def test_what_is_another_s_share_is_taken_after_a_moment() -> None:
    sharing = Sharing(at_once=50)
    left, less = pool(target=5, held=5, free=3, lacking=3), pool(target=5, held=5, free=2, lacking=3)
    assert sharing.takes(left, room=9, now=0) == 0
    assert sharing.is_waiting
    assert sharing.takes(left, room=9, now=HOLD_BACK / 2) == 0
    assert sharing.takes(left, room=9, now=HOLD_BACK) == 3
    assert sharing.takes(less, room=9, now=HOLD_BACK) == 0, "somebody takes them"
    assert sharing.takes(pool(target=5, held=5, free=2), room=9, now=HOLD_BACK + HOLD_BACK_FOR_NOBODY) == 2
    assert sharing.takes(left, room=0, now=99) == 0
    assert sharing.takes(pool(target=5, held=5), room=9, now=99) == 0


def test_a_surplus_is_given_once_it_lasts_and_in_portions() -> None:
    sharing = Sharing(at_once=50)
    much = pool(target=500, held=1000, lacking=500)
    assert sharing.gives(much, leaving=0, now=0) == 0
    assert sharing.gives(much, leaving=0, now=STEADY) == 50
    assert sharing.gives(much, leaving=50, now=STEADY) == 0
    assert sharing.gives(pool(target=500, held=950, lacking=500, free=50), leaving=0, now=STEADY) == 50
    assert sharing.gives(pool(target=500, held=520, lacking=20), leaving=0, now=STEADY) == 20, "to the end, once begun"
    assert sharing.gives(pool(target=500, held=500), leaving=0, now=STEADY) == 0
    assert sharing.gives(pool(target=500, held=520, lacking=20), leaving=0, now=99) == 0, (
        "a small surplus is left alone"
    )


def test_a_surplus_that_comes_and_goes_is_left_alone() -> None:
    sharing = Sharing(at_once=50)
    much, even = pool(target=5, held=10, lacking=5), pool(target=10, held=10)
    for second in range(10):
        assert sharing.gives(much if second % 2 else even, leaving=0, now=float(second)) == 0


def test_nothing_is_given_to_one_that_may_be_gone() -> None:
    members = (Member(job_id=1, capacity=9, held={None: 8}), Member(job_id=2, capacity=9, is_fresh=False))
    (found,) = pools_of(1, Shares(members=members))
    assert (found.target, found.lacking) == (4, 0)


class Fleet:
    """Triggerers that take and give by turns, on numbers instead of a database."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.members: dict[int, Member] = {}
        self.sharing: dict[int, Sharing] = {}
        self.moved = 0

    def start(self, job_id: int, capacity: int = 1000) -> None:
        self.members[job_id] = Member(job_id=job_id, capacity=capacity)
        self.sharing[job_id] = Sharing(at_once=50)

    def kill(self, job_id: int) -> None:
        self.free += self.held()[job_id]
        del self.members[job_id], self.sharing[job_id]

    def held(self) -> Mapping[int, int]:
        return {each: member.held.get(None, 0) for each, member in self.members.items()}

    def check_even(self, least: int, most: int) -> None:
        assert self.free == 0
        assert all(least <= count <= most for count in self.held().values()), self.held()

    def turn(self, job_id: int, now: float) -> None:
        member = self.members[job_id]
        for found in pools_of(job_id, Shares(members=tuple(self.members.values()), free={None: self.free})):
            room = member.capacity - found.held
            taken = min(50, self.sharing[job_id].takes(found, room=room, now=now))
            given = self.sharing[job_id].gives(found, leaving=0, now=now) if not taken else 0
            self.moved += given
            self.free += given - taken
            self.members[job_id] = Member(
                job_id=job_id, capacity=member.capacity, held={None: found.held + taken - given}
            )


@pytest.mark.parametrize("seed", range(20))
def test_a_fleet_settles_and_moves_nothing_twice(seed: int) -> None:
    chance = random.Random(seed)
    fleet, now = Fleet(free=1000), 0.0
    fleet.start(1)
    for step in range(3000):
        now += chance.choice([0.01, 0.05, 0.2])
        if step == 5:
            fleet.start(2)
        if step == 1000:
            fleet.check_even(400, 600)
            assert fleet.moved == 0, "whoever starts a moment later finds its share left"
            fleet.start(3)
        if step == 2000:
            fleet.check_even(270, 400)
            assert fleet.moved <= 340, "each moved trigger moved once"
            fleet.moved = 0
            fleet.kill(1)
        fleet.turn(chance.choice(list(fleet.members)), now)
    fleet.check_even(400, 600)
    assert fleet.moved == 0
