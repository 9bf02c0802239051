"""What a triggerer writes about its triggers, one thing after the other; while the database is away it all waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from app.kernel.clock import Clock
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.triggerer.held import Held
from app.services import trigger_limits, trigger_sources, triggers
from app.store.database import Database
from app.store.wakeups import Notifier

#: Triggers given up in one statement.
_RELEASED_TOGETHER = 500

_log = get_logger("triggerer")
_Job = Callable[[], Awaitable[None]]


class Writes(Protocol):
    """What the supervisor has written about its triggers, in order."""

    def failed(self, held: Held, *, error: str, delay: timedelta, quarantined: bool) -> None:
        """It failed and starts again after ``delay``."""
        ...

    def source(self, held: Held, *, error: str | None, failures: int) -> None:
        """Its source fails or answers again."""
        ...

    def struck(self, held: Held) -> None:
        """One more runner was killed while it executed."""
        ...

    def start(
        self,
        due: Callable[[], list[Held]],
        then: Callable[[list[Held], dict[int, Any]], None],
        otherwise: Callable[[list[Held]], None],
    ) -> None:
        """Those due are about to start again; ``then`` gets them and the positions of those still ours.

        If that cannot be written, for another reason than that the database is away, ``otherwise`` gets them.
        """
        ...

    def release(self, held: Held) -> None:
        """It is given up."""
        ...

    def degraded(self, held: Held, *, reason: str) -> None:
        """Its source stood still and is started again."""
        ...

    def lags(self, lags: Sequence[tuple[int, int, int | None]]) -> None:
        """How much waits at the sources of the ``(id, epoch)`` triggers; None is unknown."""
        ...

    def throttled(self, held: Held, *, reason: str | None) -> None:
        """It waits at its yield for that reason, or (None) no more."""
        ...


class QueuedWrites:
    """The writes of one lease. ``on_fenced`` hears of triggers that turn out not to be ours any more."""

    def __init__(self, database: Database, notifier: Notifier, *, owner_id: int, clock: Clock) -> None:
        self._database = database
        self._notifier = notifier
        self._owner_id = owner_id
        self._clock = clock
        self._queue: asyncio.Queue[_Job] = asyncio.Queue()
        self._released: list[Held] = []
        self._trouble = LimitedLog(_log)
        self.on_fenced: Callable[[Held], None] = lambda _: None

    def failed(self, held: Held, *, error: str, delay: timedelta, quarantined: bool) -> None:
        """It failed and starts again after ``delay``."""
        next_attempt_at = self._clock.now() + delay

        async def write() -> None:
            ours = await triggers.record_failure(
                self._database,
                owner_id=self._owner_id,
                trigger_id=held.id,
                epoch=held.epoch,
                error=error,
                next_attempt_at=next_attempt_at,
                quarantined=quarantined,
            )
            if not ours:
                self.on_fenced(held)

        self._queue.put_nowait(write)

    def source(self, held: Held, *, error: str | None, failures: int) -> None:
        """Its source fails or answers again."""

        async def write() -> None:
            await triggers.record_status(
                self._database,
                owner_id=self._owner_id,
                trigger_id=held.id,
                epoch=held.epoch,
                error=error,
                failures=failures,
            )

        self._queue.put_nowait(write)

    def struck(self, held: Held) -> None:
        """One more runner was killed while it executed."""
        strikes = held.strikes

        async def write() -> None:
            await triggers.record_strikes(
                self._database, owner_id=self._owner_id, trigger_id=held.id, epoch=held.epoch, strikes=strikes
            )

        self._queue.put_nowait(write)

    def start(
        self,
        due: Callable[[], list[Held]],
        then: Callable[[list[Held], dict[int, Any]], None],
        otherwise: Callable[[list[Held]], None],
    ) -> None:
        """Those due when this is written start again; ``then`` gets them and the positions of those still ours.

        If that cannot be written, for another reason than that the database is away, ``otherwise`` gets them.
        """

        async def write() -> None:
            held = due()
            if not held:
                return
            pairs = [(each.id, each.epoch) for each in held]
            try:
                positions = await self._again_while_away(
                    lambda: triggers.mark_running(self._database, owner_id=self._owner_id, triggers=pairs)
                )
            except Exception:
                otherwise(held)
                raise
            then(held, positions)

        self._queue.put_nowait(write)

    def release(self, held: Held) -> None:
        """It is given up."""
        if not self._released:
            self._queue.put_nowait(self._release)
        self._released.append(held)

    def degraded(self, held: Held, *, reason: str) -> None:
        """Its source stood still and is started again."""

        async def write() -> None:
            await trigger_sources.record_degraded(
                self._database, owner_id=self._owner_id, trigger_id=held.id, epoch=held.epoch, reason=reason
            )

        self._queue.put_nowait(write)

    def lags(self, lags: Sequence[tuple[int, int, int | None]]) -> None:
        """How much waits at the sources of the ``(id, epoch)`` triggers; None is unknown."""

        async def write() -> None:
            await trigger_sources.record_lags(self._database, owner_id=self._owner_id, lags=lags)

        self._queue.put_nowait(write)

    def throttled(self, held: Held, *, reason: str | None) -> None:
        """It waits at its yield for that reason, or (None) no more."""

        async def write() -> None:
            await trigger_limits.record_throttled(
                self._database, owner_id=self._owner_id, trigger_id=held.id, epoch=held.epoch, reason=reason
            )

        self._queue.put_nowait(write)

    async def _release(self) -> None:
        released, self._released = self._released, []
        for start in range(0, len(released), _RELEASED_TOGETHER):
            pairs = [(held.id, held.epoch) for held in released[start : start + _RELEASED_TOGETHER]]
            await self._again_while_away(
                lambda pairs=pairs: triggers.release(  # type: ignore[misc]
                    self._database, self._notifier, owner_id=self._owner_id, triggers=pairs
                )
            )

    async def done(self) -> None:
        """Everything asked for so far is written."""
        await self._queue.join()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            job = await self._queue.get()
            try:
                await self._again_while_away(job)
            except Exception as error:  # noqa: BLE001 — a status that cannot be written must not stop the triggers
                self._trouble.failed(
                    "write", f"a status cannot be written: {error!r}", action="status_failed", exc_info=error
                )
            finally:
                self._queue.task_done()

    async def _again_while_away(self, work: Callable[[], Awaitable[Any]]) -> Any:
        def troubled(error: BaseException) -> None:
            self._trouble.failed("away", f"the database is away, statuses wait: {error}", action="status_waits")

        found = await self._database.until_available(work, on_trouble=troubled)
        self._trouble.recovered("away", "statuses are written again", action="status_recovered")
        return found
