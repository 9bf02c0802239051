"""Removing what is old: batch after batch, by hand (``tidegate db clean``) or steadily at the scheduler that leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from app.domain.retention import MEMORIES, RECORDS
from app.kernel.clock import Clock
from app.kernel.settings import Settings
from app.kernel.telemetry import get_logger
from app.services import retention
from app.services.leadership import Term
from app.services.retention import Batch, Cleaning, Kind, TermOver
from app.store.database import Database

_log = get_logger("retention")

#: Share of its time for which background removal works; it rests for the remainder.
_SHARE = 0.25
#: Shortest rest between two batches in the background, in seconds.
_REST = 0.02

Told = Callable[[Kind, Batch], None]


async def clean(
    database: Database,
    cleanings: Iterable[Cleaning],
    *,
    told: Told | None = None,
    rest: Callable[[float], float] | None = None,
) -> dict[Kind, int]:
    """Do the cleanings one after the other; how many rows of each kind went (with ``dry_run``: would go).

    May be ended at any time: each batch is a transaction, and beginning anew goes on where it was. ``told`` hears of
    each batch; ``rest`` says how many seconds to pause after a batch that took so many.

    Raises:
        TermOver: As :func:`app.services.retention.clean_batch`; what was removed stays so.
        DatabaseUnavailable: The server is away.
    """
    loop = asyncio.get_running_loop()
    removed: dict[Kind, int] = {}
    for cleaning in cleanings:
        place = None
        removed.setdefault(cleaning.kind, 0)
        while True:
            began = loop.time()
            batch = await retention.clean_batch(database, cleaning, after=place)
            removed[cleaning.kind] += batch.removed
            if told is not None:
                told(cleaning.kind, batch)
            if batch.next is None:
                break
            place = batch.next
            if rest is not None:
                await asyncio.sleep(rest(loop.time() - began))
    return removed


def ages(settings: Settings) -> dict[Kind, float]:
    """How old what is removed in the background must be, in days, kind by kind; kinds that are kept are left out."""
    found = {
        Kind.RUNS: settings.retention_runs_days,
        Kind.EVENTS: settings.retention_events_days,
        Kind.DEAD_LETTERS: settings.retention_dead_letters_days,
    }
    for kind in Kind:
        if kind in MEMORIES:
            found[kind] = settings.dedup_retention_days
        elif kind not in RECORDS:
            found[kind] = settings.retention_bookkeeping_days
    return {kind: found[kind] for kind in Kind if found[kind] > 0}


def cleanings(
    before: Mapping[Kind, datetime],
    *,
    now: datetime,
    settings: Settings,
    size: int | None = None,
    dry_run: bool = False,
    term: Term | None = None,
) -> list[Cleaning]:
    """What to remove of each kind, in the right order: runs before the events that they name."""
    return [
        Cleaning(
            kind=kind,
            before=before[kind],
            known_before=now - timedelta(days=settings.dedup_retention_days),
            size=size or settings.retention_batch_size,
            dry_run=dry_run,
            term=term,
        )
        for kind in Kind
        if kind in before
    ]


class RetentionKeeper:
    """Removes steadily what the settings let go, as long as this scheduler leads."""

    def __init__(
        self, *, database: Database, settings: Settings, clock: Clock, term: Callable[[], Term | None]
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._term = term
        self._again_at = clock.monotonic()

    async def run_once(self) -> dict[Kind, int]:
        """One round, if it is time and this process leads; what was removed. Each batch repeats the term.

        Raises:
            DatabaseUnavailable: The server is away; the next round begins anew.
        """
        term = self._term()
        if term is None or self._clock.monotonic() < self._again_at:
            return {}
        now = await retention.server_time(self._database)
        before = {kind: now - timedelta(days=days) for kind, days in ages(self._settings).items()}
        work = cleanings(before, now=now, settings=self._settings, term=term)
        try:
            removed = await clean(self._database, work, rest=_rest)
        except TermOver:
            return {}
        self._again_at = self._clock.monotonic() + self._settings.retention_interval
        counts = {kind.value: count for kind, count in removed.items() if count}
        if counts:
            _log.info("old rows were removed", action="retention", **counts)
        return removed


def _rest(took: float) -> float:
    return max(took * (1 / _SHARE - 1), _REST)
