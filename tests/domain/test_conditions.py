from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.conditions import MAX_CLAUSES, Clause, ConditionRefused, clauses, flatten
from app.domain.specs import AllOf, AnyOf, AssetKey, AssetLeaf, Condition

NAMES = "abcdef"


def leaf(name: str) -> AssetLeaf:
    return AssetLeaf(name=name, uri=f"x://{name}")


def clause(names: str) -> Clause:
    return frozenset(AssetKey(name=name, uri=f"x://{name}") for name in names)


def both(*members: Condition) -> AllOf:
    return AllOf(members=members)


def either(*members: Condition) -> AnyOf:
    return AnyOf(members=members)


A, B, C, D = map(leaf, "abcd")

conditions: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from(NAMES).map(leaf),
    lambda inner: st.builds(
        lambda kind, members: kind(members=tuple(members)),
        st.sampled_from([AnyOf, AllOf]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)


def holds(condition: Condition, present: frozenset[AssetKey]) -> bool:
    """The plain meaning, written independently: an empty group never holds."""
    match condition:
        case AssetLeaf(name=name, uri=uri):
            return AssetKey(name=name, uri=uri) in present
        case AnyOf(members=members):
            return any(holds(member, present) for member in members)
        case AllOf(members=members):
            return bool(members) and all(holds(member, present) for member in members)


@given(conditions, st.frozensets(st.sampled_from(NAMES)))
def test_clauses_mean_what_the_condition_means(condition: Condition, names: frozenset[str]) -> None:
    present = clause("".join(names))

    assert any(member <= present for member in clauses(condition)) == holds(condition, present)


@given(conditions)
def test_clauses_are_absorbed_and_never_empty(condition: Condition) -> None:
    found = clauses(condition)

    assert all(found)
    assert not any(one < other or one == other for i, one in enumerate(found) for other in found[:i] + found[i + 1 :])


@given(conditions, st.frozensets(st.sampled_from(NAMES)))
def test_flattening_keeps_the_meaning_and_leaves_no_group_in_its_own_kind(
    condition: Condition, names: frozenset[str]
) -> None:
    flat = flatten(condition)

    assert holds(flat, clause("".join(names))) == holds(condition, clause("".join(names)))
    assert flatten(flat) == flat
    pending: list[Condition] = [flat]
    while pending:
        member = pending.pop()
        if isinstance(member, AnyOf | AllOf):
            assert not any(type(inner) is type(member) and inner.members for inner in member.members)
            pending.extend(member.members)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (A, ["a"]),
        (either(A, B, A), ["a", "b"]),
        (both(A, B), ["ab"]),
        (both(A, either(B, C)), ["ab", "ac"]),
        (either(both(A, B), A), ["a"]),
        (either(both(B, C), both(A, D), both(C, B)), ["bc", "ad"]),
        (both(either(A, B), either(A, C)), ["a", "bc"]),
        (either(), []),
        (both(), []),
        (both(A, both()), []),
        (either(A, both()), ["a"]),
    ],
)
def test_clauses_come_in_declared_order(condition: Condition, expected: list[str]) -> None:
    assert clauses(condition) == tuple(clause(names) for names in expected)


def test_a_thousand_clauses_are_accepted_and_one_more_is_refused() -> None:
    leaves = [leaf(f"n{i}") for i in range(MAX_CLAUSES + 1)]

    assert len(clauses(either(*leaves[:MAX_CLAUSES]))) == MAX_CLAUSES
    with pytest.raises(ConditionRefused, match="more than 1,000 alternatives"):
        clauses(either(*leaves))


def test_an_exploding_condition_is_refused_before_it_explodes() -> None:
    explosive = both(*(either(leaf(f"l{i}"), leaf(f"r{i}")) for i in range(60)))

    started = time.monotonic()
    with pytest.raises(ConditionRefused):
        clauses(explosive)
    assert time.monotonic() - started < 20


def test_what_fixed_members_make_trivial_is_not_expanded() -> None:
    pairs = [either(leaf(f"l{i}"), leaf(f"r{i}")) for i in range(60)]
    fixed = [leaf(f"l{i}") for i in range(60)]

    assert len(clauses(both(*pairs, *fixed))) == 1


def test_two_equal_wide_alternatives_stay_as_wide() -> None:
    wide = either(*(leaf(f"n{i}") for i in range(MAX_CLAUSES)))
    again = either(*(leaf(f"n{i}") for i in reversed(range(MAX_CLAUSES))))

    assert len(clauses(both(wide, again))) == MAX_CLAUSES


def test_endless_nesting_is_refused() -> None:
    condition: Condition = A
    for depth in range(300):
        condition = both(condition, leaf(f"b{depth}")) if depth % 2 else either(condition, leaf(f"a{depth}"))

    with pytest.raises(ConditionRefused, match="deep"):
        clauses(condition)
