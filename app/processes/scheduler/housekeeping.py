"""Housekeeping: attempts whose executor died are brought back."""

from __future__ import annotations

from app.kernel.settings import Settings
from app.kernel.telemetry import get_logger
from app.services import jobs, tasks
from app.store.database import Database
from app.store.wakeups import Notifier

_log = get_logger("scheduler")


class Housekeeper:
    """Looks after what dead processes left. Any number may work on one database."""

    def __init__(self, *, database: Database, notifier: Notifier, settings: Settings, job_id: int) -> None:
        self._database = database
        self._notifier = notifier
        self._settings = settings
        self._job_id = job_id

    async def run_once(self) -> int:
        """End dead schedulers and retry, by rule, the attempts of every executor that ended; how many attempts.

        Triggerers end each other; nobody takes over from other kinds of process, so of these only the rows are ended.

        Raises:
            DatabaseUnavailable: The server is away.
        """
        await jobs.fence_dead_owners(
            self._database, self._notifier, self._settings, job_type="scheduler", self_id=self._job_id
        )
        await jobs.end_silent(self._database, self._settings)
        lost = await tasks.fail_lost_of_ended(self._database, self._notifier)
        if lost:
            _log.warning("attempts of executors that ended were brought back", action="attempts_lost", attempts=lost)
        return lost
