"""Planning: what is looked at when demand is stored, a run ends, a DAG changes, or a moment comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.kernel.backoff import Backoff
from app.kernel.clock import Clock
from app.kernel.telemetry import LimitedLog, get_logger
from app.services import demand, runs, tasks
from app.services.demand import next_moment
from app.store.database import Database
from app.store.wakeups import Notifier

_log = get_logger("scheduler")

#: Longest time for demand alone before what is due by time has its turn, in seconds.
LONGEST_LOOK = 0.2
#: How long a DAG whose row stays locked is left alone, in seconds.
BUSY_REST = 0.5
#: Pauses before a DAG that could not be planned is tried again, unless it changes before.
_BACKOFF = Backoff(first=1.0, longest=60.0)


@dataclass(slots=True, kw_only=True)
class _Failing:
    """A DAG that could not be planned."""

    failures: int = 0
    again_at: float = 0.0


class Planner:
    """Makes and starts runs, one look at a time; any number of them may work on one database."""

    def __init__(self, *, database: Database, notifier: Notifier, clock: Clock) -> None:
        self._database = database
        self._notifier = notifier
        self._clock = clock
        self._failing: dict[str, _Failing] = {}
        self._trouble = LimitedLog(_log, monotonic=clock.monotonic)
        self._looked_at: datetime | None = None

    async def run_once(self, *, by_clock: bool) -> float | None:
        """Plan until nothing is left to do (or for :data:`LONGEST_LOOK`), with ``by_clock`` also what is due by time.

        Returns the seconds until something is due by time, None if nothing is. A flood makes that zero, so that what
        is due by time has its turn in between.

        Raises:
            DatabaseUnavailable: The server is away; the next look finds the same again.
        """
        if by_clock:
            await self._look_at_clock()
        until = self._clock.monotonic() + LONGEST_LOOK
        while True:
            outcome = await demand.plan(self._database, self._notifier, skip=self._resting())
            self._note(outcome.failed)
            for dag_id in outcome.busy:
                # Somebody holds its row for long; without a rest every look would wait for it, and so would the others.
                self._failing.setdefault(dag_id, _Failing()).again_at = self._clock.monotonic() + BUSY_REST
            for dag_id in self._failing.keys() & set(outcome.planned):
                self._recovered(dag_id)
            if not outcome.more:
                break
            if self._clock.monotonic() >= until:
                return 0.0
        self._looked_at, seconds = await next_moment(self._database, after=self._looked_at)
        return seconds

    async def _look_at_clock(self) -> None:
        await tasks.requeue_due(self._database, self._notifier)
        due = await runs.create_due(self._database, self._notifier, skip=self._resting())
        self._note(due.failed)

    def forget_failures(self) -> None:
        """DAGs changed: those that could not be planned are tried at once."""
        for failing in self._failing.values():
            failing.again_at = 0.0

    def _resting(self) -> frozenset[str]:
        now = self._clock.monotonic()
        return frozenset(dag_id for dag_id, failing in self._failing.items() if failing.again_at > now)

    def _note(self, failed: Mapping[str, Exception]) -> None:
        for dag_id, error in failed.items():
            failing = self._failing.setdefault(dag_id, _Failing())
            failing.failures += 1
            failing.again_at = self._clock.monotonic() + _BACKOFF.delay(failing.failures)
            self._trouble.failed(
                dag_id,
                "a DAG could not be planned; the others go on",
                action="planning_failed",
                dag_id=dag_id,
                error=f"{type(error).__name__}: {error}",
                exc_info=error,
            )

    def _recovered(self, dag_id: str) -> None:
        del self._failing[dag_id]
        self._trouble.recovered(dag_id, "a DAG is planned again", action="planning_recovered", dag_id=dag_id)
