"""From pending events to groups: each group will be one run. Pure, and the same whoever computes it, whenever.

Arrivals are taken in the DAG's stored order. An arrival that completes a clause closes a group; what completes nothing
stays pending. What stays pending completes no clause by itself, so replaying it together with later arrivals gives the
same groups as going on from where the last planner stopped: nothing but the pending rows has to be remembered.

Batches collect groups. Their limits are replayed too, with the moment each group was completed, so that a planner that
was away closes the same batches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from app.domain.specs import BatchSpec

Asset = TypeVar("Asset", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival(Generic[Asset]):
    """One pending event of one DAG. ``position`` is its place in the DAG's order, ``at`` when it was stored."""

    position: int
    event_id: int
    asset: Asset
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Generic[Asset]):
    """A completed clause and its events, in order; the last one is the event that completed it."""

    arrivals: tuple[Arrival[Asset], ...]

    @property
    def completed_by(self) -> Arrival[Asset]:
        """The arrival that completed the clause."""
        return self.arrivals[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping(Generic[Asset]):
    """What the arrivals make: groups in order of completion, and what stays pending, in order of arrival."""

    groups: tuple[Group[Asset], ...]
    pending: tuple[Arrival[Asset], ...]


def group_arrivals(clauses: Sequence[frozenset[Asset]], arrivals: Iterable[Arrival[Asset]]) -> Grouping[Asset]:
    """Group all pending arrivals of a DAG by its clauses (absorbed, in declared order).

    The smallest completed clause wins, ties go to the first declared. A clause of one asset takes the one event, a
    clause of several assets takes every pending event of those assets.
    """
    by_asset: dict[Asset, list[frozenset[Asset]]] = {}
    for clause in sorted(clauses, key=len):
        for asset in clause:
            by_asset.setdefault(asset, []).append(clause)
    pending: dict[Asset, list[Arrival[Asset]]] = {}
    groups: list[Group[Asset]] = []
    for arrival in sorted(arrivals, key=_position):
        pending.setdefault(arrival.asset, []).append(arrival)
        completed = next((c for c in by_asset.get(arrival.asset, ()) if pending.keys() >= c), None)
        if completed is None:
            continue
        taken = [member for asset in completed for member in pending.pop(asset)]
        groups.append(Group(arrivals=tuple(sorted(taken, key=_position))))
    rest = sorted((arrival for waiting in pending.values() for arrival in waiting), key=_position)
    return Grouping(groups=tuple(groups), pending=tuple(rest))


def _position(arrival: Arrival[Asset]) -> int:
    return arrival.position


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A batch begun by an earlier planner: how many events it holds and when it closes by time."""

    events: int
    closes_at: datetime | None


@dataclass(slots=True, kw_only=True)
class Batch(Generic[Asset]):
    """Groups that become one run. ``continues`` marks the batch that was open before, ``closed`` one at its limit."""

    closes_at: datetime | None
    events: int = 0
    continues: bool = False
    closed: bool = False
    groups: list[Group[Asset]] = field(default_factory=list)


def batch_groups(
    batch: BatchSpec | None, groups: Iterable[Group[Asset]], *, now: datetime, open_batch: OpenBatch | None = None
) -> list[Batch[Asset]]:
    """Put groups into batches, in order. Without a declared batch each group is a closed batch of its own.

    A batch closes as soon as it holds ``max_events`` events, before a group that would exceed them, and ``max_wait``
    seconds after its first group was completed. Only the last one returned may be open. A single group larger than
    ``max_events`` is a batch by itself.
    """
    batches: list[Batch[Asset]] = []
    current: Batch[Asset] | None = None
    if open_batch is not None:
        current = Batch(closes_at=open_batch.closes_at, events=open_batch.events, continues=True)
        batches.append(current)
        current.closed = batch is None or _is_full(batch, current)
    for group in groups:
        if current is None or current.closed or _must_close_before(batch, current, group):
            if current is not None:
                current.closed = True
            current = Batch(closes_at=_deadline(batch, group))
            batches.append(current)
        current.groups.append(group)
        current.events += len(group.arrivals)
        current.closed = batch is None or _is_full(batch, current)
    if current is not None and current.closes_at is not None and current.closes_at <= now:
        current.closed = True
    return batches


def _is_full(batch: BatchSpec, current: Batch[Asset]) -> bool:
    return batch.max_events is not None and current.events >= batch.max_events


def _must_close_before(batch: BatchSpec | None, current: Batch[Asset], group: Group[Asset]) -> bool:
    if batch is None:
        return True
    if batch.max_events is not None and current.events + len(group.arrivals) > batch.max_events:
        return True
    return current.closes_at is not None and group.completed_by.at >= current.closes_at


def _deadline(batch: BatchSpec | None, group: Group[Asset]) -> datetime | None:
    if batch is None or batch.max_wait is None:
        return None
    return group.completed_by.at + timedelta(seconds=batch.max_wait)
