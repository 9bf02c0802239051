"""How many triggers a triggerer may take, and how many it gives to others: its share, from what all of them have.

Triggers that exactly the same triggerers serve are a pool; each pool is shared evenly, as far as capacities allow.
The functions are pure. :class:`Sharing` adds what needs memory: what is free although it is nobody's turn is taken
after a moment by whoever has room, and a surplus is given away only once it has lasted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.processes.triggerer.held import Held, Phase
from app.services.shares import Member, Shares

#: How long what is another's share may stay free before whoever has room takes it, in seconds: shorter if nobody is
#: known who lacks it.
HOLD_BACK = 2.0
HOLD_BACK_FOR_NOBODY = 0.5
#: How long a surplus must last before it is given away, in seconds: whoever just came up has a runner ready by then,
#: and one that ends again soon has interrupted nobody.
STEADY = 5.0
#: The surplus over one's share that is left alone.
SLACK = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Triggers of queues that the same triggerers serve, as one of these sees them.

    ``target`` is its share, ``lacking`` what others that can be relied on miss of theirs.
    """

    queues: frozenset[str | None]
    target: int
    held: int
    free: int
    lacking: int

    @property
    def names(self) -> list[str] | None:
        """What a claim is told: the queues, or None for triggers without one."""
        return None if None in self.queues else sorted(name for name in self.queues if name is not None)


def pools_of(job_id: int, shares: Shares) -> list[Pool]:
    """The pools that the triggerer ``job_id`` serves."""
    members = {member.job_id: member for member in shares.members}
    me = members.get(job_id)
    if me is None:
        return []
    queues = {queue for member in members.values() for queue in member.held} | shares.free.keys()
    grouped: dict[frozenset[int], set[str | None]] = {}
    for queue in queues:
        if me.serves(queue):
            served_by = frozenset(each for each, member in members.items() if member.serves(queue))
            grouped.setdefault(served_by, set()).add(queue)
    return [
        _pool(me, [members[each] for each in served_by], queues=frozenset(found), free=shares.free)
        for served_by, found in sorted(grouped.items(), key=lambda group: sorted(group[0]))
    ]


def _pool(me: Member, members: list[Member], *, queues: frozenset[str | None], free: Mapping[str | None, int]) -> Pool:
    held = {member.job_id: sum(member.held.get(queue, 0) for queue in queues) for member in members}
    rooms = {
        member.job_id: max(0, member.capacity - sum(member.held.values()) + held[member.job_id]) for member in members
    }
    unclaimed = sum(free.get(queue, 0) for queue in queues)
    targets = fair_targets(rooms, unclaimed + sum(held.values()))
    return Pool(
        queues=queues,
        target=targets[me.job_id],
        held=held[me.job_id],
        free=unclaimed,
        lacking=sum(
            max(0, targets[member.job_id] - held[member.job_id])
            for member in members
            if member.job_id != me.job_id and member.is_fresh
        ),
    )


def fair_targets(rooms: Mapping[int, int], total: int) -> dict[int, int]:
    """Even shares of ``total``, rounded up; who has less room gets as much as fits, and others the rest."""
    targets: dict[int, int] = {}
    left = sorted(rooms.items(), key=lambda each: each[1])
    while left:
        share = math.ceil(total / len(left))
        (job_id, room), *others = left
        if room >= share:
            return targets | {each: share for each, _ in left}
        targets[job_id] = room
        total -= room
        left = others
    return targets


def may_take(pool: Pool, *, room: int) -> int:
    """How many free triggers of the pool are ours to claim."""
    return max(0, min(room, pool.free, pool.target - pool.held))


def must_give(pool: Pool, *, leaving: int, at_once: int, has_begun: bool) -> int:
    """How many triggers to give up now, besides those that are ``leaving`` and at most ``at_once`` at a time.

    What is free or leaving is on its way to those that lack some. A small surplus is no reason to begin.
    """
    surplus = pool.held - pool.target
    if not has_begun and (pool.free or surplus <= pool.target * SLACK):
        return 0
    return max(0, min(surplus - leaving, pool.lacking - pool.free - leaving, at_once - leaving))


def choose(held: Iterable[Held], *, pool: Pool, count: int) -> list[Held]:
    """Those to give up: what runs and has nothing half received, the latest started first; none that runs alone."""
    candidates = [
        each
        for each in held
        if each.claimed.queue in pool.queues and each.phase is Phase.RUNNING and not each.is_alone and not each.parts
    ]
    return sorted(candidates, key=lambda each: each.started_at, reverse=True)[:count]


class Sharing:
    """What one triggerer remembers of the pools it serves. Times are of ``time.monotonic()``."""

    def __init__(self, *, at_once: int) -> None:
        self._at_once = at_once
        self._free_since: dict[frozenset[str | None], tuple[float, int]] = {}
        self._surplus_since: dict[frozenset[str | None], float] = {}
        self._giving: set[frozenset[str | None]] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether something free is left to others for the moment."""
        return bool(self._free_since)

    def takes(self, pool: Pool, *, room: int, now: float) -> int:
        """How many triggers of the pool to claim now."""
        count = may_take(pool, room=room)
        if count or not pool.free or room <= 0:
            self._free_since.pop(pool.queues, None)
            return count
        since, before = self._free_since.get(pool.queues, (now, pool.free))
        if pool.free < before:
            since = now  # Others are taking them.
        self._free_since[pool.queues] = since, pool.free
        patience = HOLD_BACK if pool.lacking else HOLD_BACK_FOR_NOBODY
        return min(room, pool.free) if now - since >= patience else 0

    def gives(self, pool: Pool, *, leaving: int, now: float) -> int:
        """How many triggers of the pool to give up now."""
        has_begun = pool.queues in self._giving
        count = must_give(pool, leaving=leaving, at_once=self._at_once, has_begun=has_begun)
        if has_begun:
            if pool.held <= pool.target or not pool.lacking:
                self._giving.discard(pool.queues)
            return count
        if not count:
            self._surplus_since.pop(pool.queues, None)
            return 0
        if now - self._surplus_since.setdefault(pool.queues, now) < STEADY:
            return 0
        del self._surplus_since[pool.queues]
        self._giving.add(pool.queues)
        return count
