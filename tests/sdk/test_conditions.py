from __future__ import annotations

import os
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.json_values import NotJson
from app.sdk import Asset, AssetAll, AssetAny, AssetSchedule, Batch, Metadata
from app.sdk.assets import Condition, as_condition

A, B, C = Asset("a"), Asset("b"), Asset("c")


def test_joins_flatten_from_both_sides() -> None:
    assert A & (B & C) == (A & B) & C == AssetAll(A, B, C)
    assert A | (B | C) == (A | B) | C == AssetAny(A, B, C)
    assert (A | (B & C)).objects == (A, AssetAll(B, C))


leaves = st.sampled_from([A, B, C, Asset("d"), Asset("e")])
conditions = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from([AssetAll, AssetAny]), inner, inner).map(lambda p: p[0](*p[1:]))
)


def holds(condition: Condition, present: set[Asset]) -> bool:
    if isinstance(condition, AssetAll):
        return all(holds(member, present) for member in condition.objects)
    if isinstance(condition, AssetAny):
        return any(holds(member, present) for member in condition.objects)
    return condition in present


@given(conditions, conditions, st.sets(leaves))
def test_flattening_keeps_the_meaning(left: Condition, right: Condition, present: set[Asset]) -> None:
    assert holds(left & right, present) == (holds(left, present) and holds(right, present))
    assert holds(left | right, present) == (holds(left, present) or holds(right, present))


@given(conditions)
def test_no_member_is_joined_by_its_own_word(condition: Condition) -> None:
    pending = [condition]
    while pending:
        member = pending.pop()
        if isinstance(member, (AssetAll, AssetAny)):
            assert not any(type(inner) is type(member) for inner in member.objects)
            assert len(set(member.objects)) == len(member.objects)
            pending.extend(member.objects)


def test_a_list_means_all_of_it() -> None:
    assert as_condition([A, B]) == A & B


@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_list_is_refused(empty: list[Asset]) -> None:
    with pytest.raises(ValueError, match="at least one asset"):
        as_condition(empty)


def test_other_operands_are_refused() -> None:
    with pytest.raises(TypeError, match="must be assets or conditions"):
        A & "b"
    with pytest.raises(TypeError, match="neither an asset"):
        AssetAny(A, "b")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        AssetAll()


def test_equality_is_identity_of_name_and_uri() -> None:
    assert Asset("a", extra={"x": 1}, group="g") == A
    assert hash(Asset("a", extra={"x": 1})) == hash(A)
    assert Asset("a", uri="s3://b/k") != A
    assert os.fspath(Asset("n", uri="file:///tmp/x")) == "file:///tmp/x"


def test_password_warning_points_at_the_author_and_hides_it() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asset = Asset("s3://user:hunter2@bucket/key")
    assert asset.name == "s3://user@bucket/key"
    assert [warning.filename for warning in caught] == [__file__]
    assert "hunter2" not in str(caught[0].message)


def test_extra_must_be_json() -> None:
    with pytest.raises(NotJson, match=r"extra\['where'\]\[0\]: a PosixPath"):
        Asset("a", extra={"where": [Path("/tmp")]})
    with pytest.raises(NotJson, match="must be a mapping"):
        Metadata(A, extra=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limits", [{}, {"max_events": 0}, {"max_events": True}, {"max_wait": timedelta(0)}, {"max_wait": 5}]
)
def test_batch_limits(limits: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Batch"):
        Batch(**limits)  # type: ignore[arg-type]


def test_asset_schedule_takes_lists() -> None:
    assert AssetSchedule([A, B]).condition == A & B
    with pytest.raises(TypeError, match="must be a Batch"):
        AssetSchedule(A, batch=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", ["  ", "x" * 1501])
def test_group_rules(group: str) -> None:
    with pytest.raises(ValueError, match="group"):
        Asset("a", group=group)
