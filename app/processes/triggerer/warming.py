"""A runner for installed code is up before there is anything to run, with what the deployment's triggers import.

A take-over costs a fraction of a second; starting a runner and importing a broker's client costs one or more. So every
triggerer keeps ready what it would need if all triggers of installed classes were its own.
"""

from __future__ import annotations

import asyncio

from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.triggerer.messages import Warm
from app.processes.triggerer.runner import RunnerKey, RunnerKind, RunnerProcess
from app.processes.triggerer.runners import Runners
from app.services import triggers
from app.store.database import Database
from app.store.errors import StoreError

#: How often it is looked whether there are new classes, or the runner has ended, in seconds.
LOOK_EVERY = 2.0
INSTALLED = RunnerKey(kind=RunnerKind.INSTALLED)

_log = get_logger("triggerer")


class Warming:
    """Keeps one runner started as long as anything may need it."""

    def __init__(self, database: Database, runners: Runners) -> None:
        self._database = database
        self._runners = runners
        self._runner: RunnerProcess | None = None
        self._told: frozenset[str] = frozenset()
        self._trouble = LimitedLog(_log)

    async def keep_warm(self) -> None:
        """For ever; whatever goes wrong, a runner is started when it is needed, as ever."""
        while True:
            try:
                self._prepare(await triggers.installed_classes(self._database))
                self._trouble.recovered("warm", "the spare runner is kept again", action="warming_recovered")
            except (StoreError, TimeoutError, OSError) as error:
                self._trouble.failed("warm", f"the spare runner is not looked after: {error}", action="warming_failed")
            await asyncio.sleep(LOOK_EVERY)

    def _prepare(self, classes: frozenset[str]) -> None:
        self._runners.keep(INSTALLED if classes else None)
        if not classes:
            return
        runner = self._runners.get(INSTALLED)
        if runner is not self._runner:
            self._runner, self._told = runner, frozenset()
        if new := classes - self._told:
            runner.send(Warm(classpaths=tuple(sorted(new))))
            self._told |= new
