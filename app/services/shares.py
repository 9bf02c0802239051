"""How the triggers of a team are spread over its live triggerers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from app.kernel.settings import Settings
from app.store import shares as statements
from app.store.database import Database


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A live triggerer and how many triggers of each queue it has.

    ``is_fresh`` is whether it was heard of so lately that it can be relied on to take what is given to it.
    """

    job_id: int
    capacity: int
    queues: frozenset[str] | None = None
    held: Mapping[str | None, int] = {}
    is_fresh: bool = True

    def serves(self, queue: str | None) -> bool:
        """Whether it takes triggers of this queue: without queues of its own, those without one."""
        return queue is None if self.queues is None else queue in self.queues


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The live triggerers of a team, and what is free by queue."""

    members: tuple[Member, ...]
    free: Mapping[str | None, int] = {}


async def read_shares(database: Database, settings: Settings, *, team_name: str | None) -> Shares:
    """Who has what, as of now."""
    async with database.glance() as hot:
        rows = await statements.members(hot, team_name=team_name, lease=settings.lease_seconds)
        counts = await statements.counts(hot, team_name=team_name)
    held: dict[int | None, dict[str | None, int]] = {}
    for each in counts:
        held.setdefault(each.owner_id, {})[each.queue] = each.count
    return Shares(
        members=tuple(
            Member(
                job_id=row.id,
                capacity=row.capacity,
                queues=None if row.queues is None else frozenset(row.queues),
                held=held.get(row.id, {}),
                is_fresh=row.heartbeat_age <= settings.lease_seconds / 2,
            )
            for row in rows
        ),
        free=held.get(None, {}),
    )
