"""What triggers say of their sources, and sources that stand still: these are started again and shown as degraded.

That a source stands still is judged by what runners report every few seconds (``SourceLag``), never by a clock
of ours alone, so that a process that was stopped or starved blames nobody. A source is stuck if, over reports that
together span ``stuck_source_after`` seconds, messages wait and its trigger yields nothing. That does not count while

* something it yielded is in hand: then the wait is ours (a slow or absent database, consumers with too much waiting, a
  limit of its own), and the clock begins anew when that is resolved;
* nothing waits, or nobody knows how much does.

A source that says itself that it fails tries again by itself; it is given :data:`_FAILING_PATIENCE` times as long. One
that is stuck again without any progress since is given twice as long each time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.kernel.clock import Clock
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog
from app.processes.triggerer.held import Held, Phase
from app.processes.triggerer.messages import SourceLag, SourceState, Stop
from app.processes.triggerer.trigger_logs import TriggerLogs
from app.processes.triggerer.writes import Writes

#: A stuck source that does not close within this time has its runner replaced, and is to blame for that, in seconds.
CLOSE_SECONDS = 10.0
#: A lag that did not change is stored again after this time, in seconds.
_RENEW_SECONDS = 60.0
#: Reports that come within this time are stored together, in seconds.
_GATHER_SECONDS = 1.0
_FORGOTTEN_SECONDS = 1800.0
_FAILING_PATIENCE = 10
_LONGEST_PATIENCE = 600.0


@dataclass(slots=True, kw_only=True)
class _Record:
    """One source. ``still`` is for how long it has been standing still, ``restarts`` how often that was no help."""

    epoch: int
    started_at: float
    reported_at: float
    yields: int = 0
    still: float = 0.0
    restarts: int = 0
    stored: int | None = None
    stored_at: float = float("-inf")


class Sources:
    """Follows what the triggers of one lease say of their sources."""

    def __init__(
        self, *, settings: Settings, clock: Clock, writes: Writes, logs: TriggerLogs, noise: LimitedLog
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._writes = writes
        self._logs = logs
        self._noise = noise
        self._records: dict[int, _Record] = {}
        self._gathered: dict[int, tuple[Held, int | None]] = {}

    def heard(self, held: Held, frame: SourceState | SourceLag) -> None:
        """A runner told something of the source of a trigger that it runs."""
        if isinstance(frame, SourceLag):
            self._judge(held, frame)
            return
        self._writes.source(held, error=frame.error, failures=frame.failures)
        key = f"source {held.id}"
        if frame.error is None:
            self._logs.write(held.id, "the source answers again")
            self._noise.recovered(key, f"the source of trigger {held.id} answers again", action="source_recovered")
            return
        self._logs.write(held.id, f"the source fails ({frame.failures} in a row): {frame.error}", level="warning")
        self._noise.failed(
            key, f"the source of trigger {held.id} fails: {frame.error}", action="source_trouble", trigger_id=held.id
        )

    def _judge(self, held: Held, frame: SourceLag) -> None:
        now = self._clock.monotonic()
        record = self._record_of(held, now)
        # Reports that were held up on their way, or by a process that was stopped, prove no longer a silence.
        elapsed = min(now - record.reported_at, 2 * self._settings.lag_interval)
        record.reported_at = now
        self._gather(held, record, lag=frame.lag, now=now)
        if frame.lag is None:
            return
        if frame.yields != record.yields and record.restarts:
            record.restarts = 0
            text = f"the source of trigger {held.id} delivers again"
            self._noise.recovered(f"stuck {held.id}", text, action="source_moves", trigger_id=held.id)
        if frame.lag == 0 or frame.in_hand or frame.yields != record.yields:
            record.yields, record.still = frame.yields, 0.0
            return
        record.still += elapsed
        if record.still >= self._patience(record, failures=frame.failures):
            self._start_anew(held, record, lag=frame.lag)

    def _record_of(self, held: Held, now: float) -> _Record:
        """The record of this start of the trigger; what was learnt of the source before it stays."""
        record = self._records.get(held.id)
        if record is None or record.epoch != held.epoch:
            record = _Record(epoch=held.epoch, started_at=held.started_at, reported_at=now)
            self._records[held.id] = record
        elif record.started_at != held.started_at:
            record.started_at, record.reported_at = held.started_at, now
            record.yields, record.still = 0, 0.0
        return record

    def _patience(self, record: _Record, *, failures: int) -> float:
        after = self._settings.stuck_source_after * (_FAILING_PATIENCE if failures else 1)
        return float(min(after * 2**record.restarts, max(after, _LONGEST_PATIENCE)))

    def _start_anew(self, held: Held, record: _Record, *, lag: int) -> None:
        """Its trigger is closed where it waits; what follows is what follows the end of any event trigger."""
        reason = f"{lag} messages wait at the source and none came for {record.still:.0f} s: it was started again"
        record.restarts += 1
        record.still = 0.0
        runner = held.runner
        if runner is None or held.phase is not Phase.RUNNING:
            return
        self._writes.degraded(held, reason=reason)
        self._tell(held, f"stands still: {reason}")
        runner.send(Stop(trigger_id=held.id, epoch=held.epoch))
        started_at = held.started_at

        def look() -> None:
            same = held.phase is Phase.RUNNING and held.runner is runner and held.started_at == started_at
            if same and not runner.is_over:
                self._tell(held, f"does not close within {CLOSE_SECONDS:g} s: its runner is replaced")
                runner.kill(blame=held.id)

        asyncio.get_running_loop().call_later(CLOSE_SECONDS, look)

    def _tell(self, held: Held, message: str) -> None:
        self._logs.write(held.id, message, level="warning")
        text = f"trigger {held.id} ({held.claimed.classpath}) {message}"
        self._noise.failed(f"stuck {held.id}", text, action="source_stuck", trigger_id=held.id)

    def _gather(self, held: Held, record: _Record, *, lag: int | None, now: float) -> None:
        """Have the lag stored soon, with those of other triggers, if it is news."""
        if lag == record.stored and now - record.stored_at < _RENEW_SECONDS:
            return
        record.stored, record.stored_at = lag, now
        if not self._gathered:
            asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._store)
        self._gathered[held.id] = (held, lag)

    def _store(self) -> None:
        """Store what was gathered; sources of which nothing has been heard for long are forgotten."""
        gathered, self._gathered = self._gathered, {}
        long_ago = self._clock.monotonic() - _FORGOTTEN_SECONDS
        self._records = {id_: each for id_, each in self._records.items() if each.reported_at > long_ago}
        self._writes.lags([(held.id, held.epoch, lag) for held, lag in gathered.values()])
