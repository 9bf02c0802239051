"""What the rows of a triggerer's own triggers say: read only where it changed since the last look.

The database sums up the rows of a thousand ids at a time; what sums up as before is not read again. No writer has to
remember to announce anything. Summing up tens of thousands of rows takes the database a while, so looks at them keep
their distance.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from app.services import triggers
from app.services.triggers import WatcherFilter
from app.store.database import Database
from app.store.triggers import Digest, OwnedRow, bucket_of

#: Looks take at most this part of the time.
_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """All rows, and watchers, of the ``buckets`` in which something changed."""

    buckets: frozenset[int]
    rows: dict[int, OwnedRow]
    watchers: dict[int, tuple[WatcherFilter, ...]]


class OwnedRows:
    """The rows of one owner."""

    def __init__(self, database: Database, *, owner_id: int) -> None:
        self._database = database
        self._owner_id = owner_id
        self._digests: dict[int, Digest] = {}
        self._claimed: set[int] = set()
        self._next_look = 0.0

    @property
    def due_in(self) -> float:
        """Seconds until the next look may be taken."""
        return max(0.0, self._next_look - time.monotonic())

    def claimed(self, trigger_ids: Iterable[int]) -> None:
        """These were claimed: their rows are read at the next look, even if they are gone by then."""
        self._claimed.update(map(bucket_of, trigger_ids))

    async def look(self) -> Changed:
        """What changed since the last look; one that fails is as if it had not been taken."""
        began = time.monotonic()
        digests = await triggers.digests(self._database, self._owner_id)
        claimed = set(self._claimed)
        known = self._digests.keys() | digests.keys()
        buckets = claimed | {bucket for bucket in known if self._digests.get(bucket) != digests.get(bucket)}
        rows, watchers = await triggers.owned(self._database, self._owner_id, buckets=sorted(buckets))
        self._digests = digests
        self._claimed -= claimed
        now = time.monotonic()
        self._next_look = now + (now - began) * (1 / _SHARE - 1)
        return Changed(buckets=frozenset(buckets), rows=rows, watchers=watchers)
