"""Conditions over assets, brought into the form the planner works with.

A condition is a tree of ``any`` and ``all`` over assets. Its *clauses* are its disjunctive form: it holds once every
asset of one clause has a pending event. Clauses are absorbed (none contains another) and keep their declared order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.domain.specs import AllOf, AnyOf, AssetKey, AssetLeaf, Condition, condition_assets

#: More clauses than this are refused when the pipeline file is read.
MAX_CLAUSES = 1_000
#: Deeper nesting of alternating ``any`` and ``all`` than this is refused.
MAX_DEPTH = 100
#: Subset checks that bringing one condition into disjunctive form may cost.
_MAX_WORK = 10_000_000

Clause = frozenset[AssetKey]


class ConditionRefused(ValueError):
    """A schedule's condition is too complex to be planned. The loader adds file and line."""


def flatten(condition: Condition) -> Condition:
    """The same condition without a group directly inside a group of its own kind, and without groups of one member.

    An empty group never holds; it is kept as it is.

    Raises:
        ConditionRefused: Nested more than ``MAX_DEPTH`` deep.
    """
    return _flatten(condition, depth=0)


def _flatten(condition: Condition, *, depth: int) -> Condition:
    if isinstance(condition, AssetLeaf):
        return condition
    if depth > MAX_DEPTH:
        raise ConditionRefused(f"the schedule's condition is nested more than {MAX_DEPTH} deep")
    kind = type(condition)
    members: dict[Condition, None] = {}
    for member in condition.members:
        flat = _flatten(member, depth=depth + 1)
        spliced = flat.members if isinstance(flat, AnyOf | AllOf) and type(flat) is kind and flat.members else (flat,)
        members.update(dict.fromkeys(spliced))
    if len(members) == 1:
        return next(iter(members))
    return kind(members=tuple(members))


def clauses(condition: Condition) -> tuple[Clause, ...]:
    """The absorbed disjunctive form, in declared order. No clause is empty; a condition that never holds has none.

    Raises:
        ConditionRefused: It, or a part of it, has more than ``MAX_CLAUSES`` clauses, or finding them costs too much.
    """
    flat = flatten(condition)
    keys = condition_assets(flat)
    normaliser = _Normaliser({key: 1 << position for position, key in enumerate(keys)})
    return tuple(
        frozenset(key for position, key in enumerate(keys) if mask >> position & 1) for mask in normaliser.masks(flat)
    )


class _Normaliser:
    """Works on bit masks: a clause is the sum of the bits of its assets."""

    def __init__(self, bits: dict[AssetKey, int]) -> None:
        self._bits = bits
        self._work = 0

    def masks(self, condition: Condition) -> list[int]:
        match condition:
            case AssetLeaf(name=name, uri=uri):
                return [self._bits[AssetKey(name=name, uri=uri)]]
            case AnyOf(members=members):
                return self._absorb(mask for member in members for mask in self.masks(member))
            case AllOf(members=members):
                return self._product([self.masks(member) for member in members])

    def _product(self, factors: Sequence[list[int]]) -> list[int]:
        if not factors or not all(factors):
            return []
        fixed = 0
        for factor in factors:
            if len(factor) == 1:
                fixed |= factor[0]
        product = [fixed]
        for factor in factors:
            product = self._absorb(self._times(product, factor))
        return product

    def _times(self, product: list[int], factor: list[int]) -> Iterable[int]:
        for mask in product:
            self._spend(len(factor))
            if any(mask & other == other for other in factor):
                yield mask
            else:
                yield from (mask | other for other in factor)

    def _absorb(self, masks: Iterable[int]) -> list[int]:
        kept: dict[int, None] = {}
        for mask in masks:
            if mask in kept:
                continue
            self._spend(len(kept) + 1)
            if any(mask & other == other for other in kept):
                continue
            for other in [other for other in kept if mask & other == mask]:
                del kept[other]
            kept[mask] = None
            if len(kept) > MAX_CLAUSES:
                raise ConditionRefused(
                    f"the schedule's condition has more than {MAX_CLAUSES:,} alternatives; "
                    "split it over several DAGs or watch fewer assets"
                )
        return list(kept)

    def _spend(self, checks: int) -> None:
        self._work += checks
        if self._work > _MAX_WORK:
            raise ConditionRefused(
                "the schedule's condition is too complex to be brought into alternatives; split it over several DAGs"
            )
