"""Removing what is old: one batch of one kind a call, in a short transaction of its own.

A batch may be repeated, interrupted or done by two at once: it removes only what nothing needs any more, whoever asks,
and leaves alone what somebody works on. With a term it is refused once another process keeps house.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.domain.retention import MEMORIES, Kind, Place
from app.kernel.errors import TidegateError
from app.store import leadership, retention_files, retention_unused
from app.store import retention as statements
from app.store.database import Database, HotConnection
from app.store.leadership import Term

__all__ = ["Batch", "Cleaning", "Kind", "Place", "TermOver", "clean_batch", "existing_bundles", "existing_triggers",
           "known_runs", "server_time"]  # fmt: skip

#: A run brings many rows with it.
_RUNS_PER_ROW = 10


class TermOver(TidegateError):
    """Another scheduler keeps house now; what this one was about to remove is left to it."""


class Cleaning(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be removed: rows of ``kind`` older than ``before``, at most ``size`` a batch.

    ``known_before``: identities made later than this are still needed to recognise redeliveries, whatever ``before``.
    """

    kind: Kind
    before: datetime
    known_before: datetime
    size: int = 500
    dry_run: bool = False
    term: Term | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch did: rows looked at and removed, and where to go on (None: the kind is done)."""

    seen: int
    removed: int
    next: Place | None


async def server_time(database: Database) -> datetime:
    """The clock by which ages are judged."""
    async with database.glance() as hot:
        return await statements.read_clock(hot)


async def clean_batch(database: Database, cleaning: Cleaning, *, after: Place | None = None) -> Batch:
    """Remove the next rows of a kind after ``after``.

    Raises:
        TermOver: The term is not the current one any more. Nothing was removed.
        DatabaseUnavailable: The server is away. The same batch may be asked for again.
        Conflict: Rows stayed locked for seconds.
    """

    async def work(hot: HotConnection) -> Batch:
        if cleaning.term is not None and not await leadership.is_current(hot, term=cleaning.term):
            raise TermOver
        await statements.use_short_locks(hot)
        if cleaning.kind in MEMORIES:
            return await _forget(hot, cleaning, after=after)
        if cleaning.kind in retention_unused.UNUSED:
            return await _remove_unused(hot, cleaning)
        return await _remove_window(hot, cleaning, after=after)

    return await database.retrying_hot(work)


async def _forget(hot: HotConnection, cleaning: Cleaning, *, after: Place | None) -> Batch:
    before = min(cleaning.before, cleaning.known_before)
    until, seen = await statements.read_upper(hot, kind=cleaning.kind, before=before, after=after, limit=cleaning.size)
    if until is None:
        return Batch(seen=0, removed=0, next=None)
    removed = await statements.forget(hot, kind=cleaning.kind, after=after, until=until, dry_run=cleaning.dry_run)
    return Batch(seen=max(seen, removed), removed=removed, next=until)


async def _remove_unused(hot: HotConnection, cleaning: Cleaning) -> Batch:
    kind, before = cleaning.kind, cleaning.before
    if cleaning.dry_run:
        count = await retention_unused.count_unused(hot, kind=kind, before=before)
        return Batch(seen=count, removed=count, next=None)
    if kind in {Kind.VERSIONS, Kind.BUNDLES} and not await retention_unused.try_lock_declarations(hot):
        return Batch(seen=0, removed=0, next=None)
    removed = await retention_unused.remove_unused(hot, kind=kind, before=before, limit=cleaning.size)
    return Batch(seen=removed, removed=removed, next=Place(at=before) if removed == cleaning.size else None)


async def _remove_window(hot: HotConnection, cleaning: Cleaning, *, after: Place | None) -> Batch:
    kind = cleaning.kind
    limit = max(cleaning.size // _RUNS_PER_ROW, 1) if kind is Kind.RUNS else cleaning.size
    ids, last = await statements.read_window(hot, kind=kind, before=cleaning.before, after=after, limit=limit)
    if not ids:
        return Batch(seen=0, removed=0, next=None)
    lock = not cleaning.dry_run
    match kind:
        case Kind.RUNS:
            chosen = await statements.removable_runs(hot, ids=ids, lock=lock)
        case Kind.EVENTS:
            chosen = await statements.removable_events(hot, ids=ids, lock=lock)
        case Kind.DEAD_LETTERS:
            chosen = await statements.removable_letters(hot, ids=ids, known_before=cleaning.known_before, lock=lock)
        case _:
            chosen = ids
    if chosen and lock:
        await _REMOVE[kind](hot, ids=chosen)
    return Batch(seen=len(ids), removed=len(chosen), next=last)


_REMOVE = {
    Kind.RUNS: statements.remove_runs,
    Kind.EVENTS: statements.remove_events,
    Kind.DEAD_LETTERS: statements.remove_letters,
    Kind.STATE_CHANGES: statements.remove_changes,
}


async def known_runs(database: Database, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bool]:
    """Those of the runs ``(dag_id, run_id)`` that exist, and whether each has ended."""
    async with database.glance() as hot:
        return await retention_files.runs_of(hot, names=names)


async def existing_triggers(database: Database, ids: Sequence[int]) -> set[int]:
    """Those of the triggers that exist."""
    async with database.glance() as hot:
        return await retention_files.triggers_of(hot, ids=ids)


async def existing_bundles(database: Database, digests: Sequence[str]) -> set[str]:
    """Those of the bundles that are stored."""
    async with database.glance() as hot:
        return await retention_files.bundles_of(hot, digests=digests)
