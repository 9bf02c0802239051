"""Housekeeping: attempts whose executor died are brought back. One scheduler at a time does it."""

from __future__ import annotations

from app.kernel.settings import Settings
from app.kernel.telemetry import get_logger
from app.services import jobs, leadership, tasks
from app.services.leadership import HOUSEKEEPING, Term
from app.store.database import Database
from app.store.wakeups import Notifier

_log = get_logger("scheduler")


class Housekeeper:
    """Looks after what dead processes left, as long as it leads. Each scheduler has one; one of them leads."""

    def __init__(self, *, database: Database, notifier: Notifier, settings: Settings, job_id: int) -> None:
        self._database = database
        self._notifier = notifier
        self._settings = settings
        self._job_id = job_id
        #: The term in which this process leads, as of the last round; None: another one does.
        self.term: Term | None = None

    async def run_once(self) -> int:
        """Lead or see whether the leader is gone; the leader ends dead schedulers and retries, by rule, the attempts of
        every executor that ended. How many attempts that was.

        Triggerers end each other; nobody takes over from other kinds of process, so of these only the rows are ended.
        A leader that was replaced in the middle does no harm: each statement repeats why it may be done (the process
        is dead or ended, the attempt still its own), so doing it twice changes nothing.

        Raises:
            DatabaseUnavailable: The server is away.
        """
        if not await self._lead():
            return 0
        await jobs.fence_dead_owners(
            self._database, self._notifier, self._settings, job_type="scheduler", self_id=self._job_id
        )
        await jobs.end_silent(self._database, self._settings)
        lost = await tasks.fail_lost_of_ended(self._database, self._notifier)
        if lost:
            _log.warning("attempts of executors that ended were brought back", action="attempts_lost", attempts=lost)
        return lost

    async def _lead(self) -> bool:
        known = self.term
        self.term = await leadership.hold(
            self._database, self._settings, role=HOUSEKEEPING, owner_id=self._job_id, known=known
        )
        if self.term is not None and self.term != known:
            _log.info("this scheduler keeps house from now on", action="leader", term=self.term.number)
        elif self.term is None and known is not None:
            _log.warning("another scheduler keeps house now", action="leader_replaced", term=known.number)
        return self.term is not None
