from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.demand import Arrival, Batch, Group, OpenBatch, batch_groups, group_arrivals
from app.domain.specs import BatchSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
Clauses = tuple[frozenset[str], ...]


def arrivals(text: str, *, first: int = 1) -> list[Arrival[str]]:
    """One arrival a letter, a second apart."""
    return [
        Arrival(position=n, event_id=100 + n, asset=letter, at=START + timedelta(seconds=n))
        for n, letter in enumerate(text, start=first)
    ]


def absorbed(clauses: Sequence[frozenset[str]]) -> Clauses:
    unique = dict.fromkeys(clauses)
    return tuple(one for one in unique if not any(other < one for other in unique))


clause_sets: st.SearchStrategy[Clauses] = st.lists(
    st.frozensets(st.sampled_from("ABCD"), min_size=1), min_size=1, max_size=5
).map(absorbed)
streams = st.text(alphabet="ABCDX", max_size=30)


def words(groups: Sequence[Group[str]]) -> list[str]:
    return ["".join(member.asset for member in group.arrivals) for group in groups]


@pytest.mark.parametrize(
    ("clauses", "stream", "expected", "rest"),
    [
        (["A"], "AAA", ["A", "A", "A"], ""),
        (["AB"], "ABAB", ["AB", "AB"], ""),
        (["AB"], "AABB", ["AAB"], "B"),
        (["AB"], "BBBA", ["BBBA"], ""),
        (["A", "B"], "ABBA", ["A", "B", "B", "A"], ""),
        (["AB", "C"], "ACB", ["C", "AB"], ""),
        (["ABC", "AD"], "BCDA", ["DA"], "BC"),  # both complete with A: the smaller one wins
        (["AB", "AC"], "BCA", ["BA"], "C"),  # a tie goes to the first declared
        (["AC", "AB"], "BCA", ["CA"], "B"),
        (["A"], "AXA", ["A", "A"], "X"),  # an asset that left the condition waits until it is dropped
        ([], "AB", [], "AB"),
    ],
)
def test_groups_by_example(clauses: list[str], stream: str, expected: list[str], rest: str) -> None:
    grouping = group_arrivals([frozenset(clause) for clause in clauses], arrivals(stream))

    assert words(grouping.groups) == expected
    assert "".join(arrival.asset for arrival in grouping.pending) == rest


@given(clause_sets, streams)
def test_each_arrival_ends_in_one_group_or_stays_pending(clauses: Clauses, stream: str) -> None:
    given_arrivals = arrivals(stream)
    grouping = group_arrivals(clauses, reversed(given_arrivals))

    ended = [member for group in grouping.groups for member in group.arrivals] + list(grouping.pending)
    assert sorted(ended, key=lambda member: member.position) == given_arrivals


@given(clause_sets, streams)
def test_no_group_without_a_cause_and_groups_in_order(clauses: Clauses, stream: str) -> None:
    grouping = group_arrivals(clauses, arrivals(stream))

    for group in grouping.groups:
        positions = [member.position for member in group.arrivals]
        assert frozenset(member.asset for member in group.arrivals) in clauses
        assert positions == sorted(positions)
        assert group.completed_by.position == max(positions)
    completions = [group.completed_by.position for group in grouping.groups]
    assert completions == sorted(completions)
    assert not any(clause <= {member.asset for member in grouping.pending} for clause in clauses)


@given(clause_sets, streams, st.lists(st.integers(0, 30), max_size=6))
def test_any_split_of_the_arrivals_over_planners_gives_the_same_groups(
    clauses: Clauses, stream: str, cuts: list[int]
) -> None:
    everything = arrivals(stream)
    bounds = [0, *sorted(min(cut, len(everything)) for cut in cuts), len(everything)]
    pending: tuple[Arrival[str], ...] = ()
    groups: list[Group[str]] = []
    for begin, end in itertools.pairwise(bounds):
        grouping = group_arrivals(clauses, [*pending, *everything[begin:end]])
        groups.extend(grouping.groups)
        pending = grouping.pending

    whole = group_arrivals(clauses, everything)
    assert (tuple(groups), pending) == (whole.groups, whole.pending)


def singles(*seconds: float) -> list[Group[str]]:
    return [
        Group(arrivals=(Arrival(position=n, event_id=n, asset="A", at=START + timedelta(seconds=at)),))
        for n, at in enumerate(seconds, start=1)
    ]


def sizes(batches: Sequence[Batch[str]]) -> list[tuple[int, bool]]:
    return [(batch.events, batch.closed) for batch in batches]


def test_without_a_batch_each_group_is_a_closed_batch() -> None:
    assert sizes(batch_groups(None, singles(1, 2, 3), now=START)) == [(1, True)] * 3


def test_a_batch_closes_at_its_number_of_events() -> None:
    assert sizes(batch_groups(BatchSpec(max_events=2), singles(1, 2, 3), now=START)) == [(2, True), (1, False)]


def test_a_group_that_would_exceed_the_number_opens_the_next_batch() -> None:
    grouping = group_arrivals([frozenset("AB"), frozenset("C")], arrivals("CCAAB"))

    assert sizes(batch_groups(BatchSpec(max_events=3), grouping.groups, now=START)) == [(2, True), (3, True)]
    assert sizes(batch_groups(BatchSpec(max_events=2), grouping.groups, now=START)) == [(2, True), (3, True)]


def test_a_batch_closes_by_time_from_its_first_group() -> None:
    spec = BatchSpec(max_wait=10)

    open_one = batch_groups(spec, singles(1, 5), now=START + timedelta(seconds=10.9))
    assert sizes(open_one) == [(2, False)]
    assert open_one[0].closes_at == START + timedelta(seconds=11)
    assert sizes(batch_groups(spec, singles(1, 5), now=START + timedelta(seconds=11))) == [(2, True)]


def test_a_planner_that_was_away_closes_the_batches_it_would_have_closed() -> None:
    late = batch_groups(BatchSpec(max_wait=10), singles(1, 5, 12, 13, 30), now=START + timedelta(seconds=35))

    assert sizes(late) == [(2, True), (2, True), (1, False)]


def test_an_open_batch_is_continued() -> None:
    open_batch = OpenBatch(events=2, closes_at=START + timedelta(seconds=9))

    batches = batch_groups(BatchSpec(max_events=3, max_wait=9), singles(2, 3), now=START, open_batch=open_batch)
    assert sizes(batches) == [(3, True), (1, False)]
    assert [batch.continues for batch in batches] == [True, False]
    assert batches[1].closes_at == START + timedelta(seconds=12)


def test_an_open_batch_closes_once_the_batch_is_no_longer_declared() -> None:
    batches = batch_groups(None, singles(2), now=START, open_batch=OpenBatch(events=2, closes_at=None))

    assert sizes(batches) == [(2, True), (1, True)]


@given(
    st.lists(st.floats(0, 100), max_size=20).map(sorted),
    st.builds(BatchSpec, max_events=st.none() | st.integers(1, 5), max_wait=st.none() | st.floats(0.1, 30)),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_batches_do_not_depend_on_when_planners_looked(times: list[float], spec: BatchSpec, cuts: list[int]) -> None:
    groups = singles(*times)
    bounds = [0, *sorted(min(cut, len(groups)) for cut in cuts), len(groups)]
    found: list[list[Group[str]]] = []
    open_batch: OpenBatch | None = None
    for begin, end in itertools.pairwise(bounds):
        looked_at = groups[end - 1].completed_by.at if end else START
        batches = batch_groups(spec, groups[begin:end], now=looked_at, open_batch=open_batch)
        for batch in batches:
            if batch.continues:
                found[-1].extend(batch.groups)
            else:
                found.append(list(batch.groups))
        last = batches[-1] if batches else None
        open_batch = OpenBatch(events=last.events, closes_at=last.closes_at) if last and not last.closed else None

    whole = batch_groups(spec, groups, now=START + timedelta(seconds=100))
    assert found == [batch.groups for batch in whole]
