"""Rounds in which a triggerer follows its rows, takes its share of what is free, and gives up what is another's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.processes.triggerer import rebalancing
from app.processes.triggerer.claiming import claim_in_lanes
from app.processes.triggerer.held import Phase
from app.processes.triggerer.owned_rows import OwnedRows
from app.processes.triggerer.rebalancing import HOLD_BACK_FOR_NOBODY, Sharing
from app.processes.triggerer.supervisor import Supervisor
from app.services import jobs, triggers
from app.services.jobs import JobSession
from app.services.shares import read_shares

if TYPE_CHECKING:
    from app.processes.triggerer.triggerer import Triggerer

#: Longest wait without looking at the rows, in seconds: a lost wake-up costs no more.
FALLBACK = 1.0
#: How long what others have is taken as known while we claim, in seconds; longer if reading it takes long.
_SHARES_ARE_GOOD_FOR = 0.1
#: Claims are interrupted after this time, so that changes of what is held are followed meanwhile, in seconds.
_CLAIM_SECONDS = 1.0


class Holdings:
    """What one lease holds."""

    def __init__(self, triggerer: Triggerer, job: JobSession, supervisor: Supervisor) -> None:
        self._triggerer = triggerer
        self._database = triggerer.database
        self._notifier = triggerer.notifier
        self._settings = triggerer.settings
        self._job = job
        self._supervisor = supervisor
        self._rows = OwnedRows(self._database, owner_id=job.id)
        self._sharing = Sharing(at_once=self._settings.max_trigger_to_select_per_loop)

    async def look(self) -> float:
        """Follow changes of what we hold, take what is free, free what belonged to the dead.

        Returns the longest time until the next look, in seconds.
        """
        await self._follow_rows()
        self._supervisor.forget_old_failures()
        await jobs.fence_dead_owners(self._database, self._notifier, self._settings, self_id=self._job.id)
        more = await self._balance()
        self._job.progress()
        longest = HOLD_BACK_FOR_NOBODY if self._sharing.is_waiting else FALLBACK
        return 0.0 if more else min(longest, self._rows.due_in or longest)

    async def _follow_rows(self) -> None:
        if self._rows.due_in > 0:
            return
        changed = await self._rows.look()
        self._supervisor.refresh(changed)
        # A claim may have been committed although its answer was lost; its triggers would be run by nobody.
        strays = [(row.id, row.epoch) for row in changed.rows.values() if not self._supervisor.knows(row)]
        if strays:
            await triggers.release(self._database, self._notifier, owner_id=self._job.id, triggers=strays)

    async def _balance(self) -> bool:
        """Take our share of what is free, looking again and again at what others have; give up what is theirs.

        Returns whether it was interrupted while there was more to take.
        """
        exhausted: set[frozenset[str | None]] = set()
        end = time.monotonic() + _CLAIM_SECONDS
        while time.monotonic() < end:
            read_at = time.monotonic()
            shares = await read_shares(self._database, self._settings, team_name=self._triggerer.team_name)
            pools = rebalancing.pools_of(self._job.id, shares)
            until = time.monotonic() + max(_SHARES_ARE_GOOD_FOR, 5 * (time.monotonic() - read_at))
            open_pools = [pool for pool in pools if pool.queues not in exhausted]
            if not any([await self._claim_of(pool, until, exhausted) for pool in open_pools]):
                self._give_up(pools)
                return False
        return True

    def _give_up(self, pools: Sequence[rebalancing.Pool]) -> None:
        for pool in pools:
            held = self._supervisor.held.values()
            leaving = 0
            if pool.held > pool.target:
                leaving = sum(each.phase is Phase.LEAVING and each.claimed.queue in pool.queues for each in held)
            count = self._sharing.gives(pool, leaving=leaving, now=time.monotonic())
            for each in rebalancing.choose(held, pool=pool, count=count) if count else ():
                self._supervisor.give_up(each)

    async def _claim_of(self, pool: rebalancing.Pool, until: float, exhausted: set[frozenset[str | None]]) -> int:
        """Claim of one pool while what is known of the shares holds; how many."""
        room = self._triggerer.capacity - len(self._supervisor.held)
        allowed = self._sharing.takes(pool, room=room, now=time.monotonic())
        taken = 0

        async def claim(limit: int) -> int:
            nonlocal taken
            claimed = await triggers.claim(
                self._database,
                self._triggerer.keys,
                owner_id=self._job.id,
                limit=limit,
                queues=pool.names,
                team_name=self._triggerer.team_name,
            )
            self._rows.claimed(each.id for each in claimed)
            self._supervisor.adopt(claimed)
            taken += len(claimed)
            if len(claimed) < limit:
                exhausted.add(pool.queues)
            return len(claimed)

        await claim_in_lanes(claim, room=allowed, most=self._settings.max_trigger_to_select_per_loop, until=until)
        return taken
