"""The triggers of one lease: started, restarted, quarantined, closed; and the runners that run them.

Everything here is plain code on the parent's loop: frames, ends of runners and timers come in, frames and writes go
out. Writes to the database go through one queue, so that what is said about a trigger is stored in the order it
happened; the database being away delays them and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from app.kernel.clock import Clock
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.triggerer import messages
from app.processes.triggerer.aging import Aging
from app.processes.triggerer.committer import Committer, Waiting
from app.processes.triggerer.deaths import ShortLives, may_be_chance, shown
from app.processes.triggerer.held import Held, Phase, restart_backoff, watches
from app.processes.triggerer.owned_rows import Changed
from app.processes.triggerer.runner import RunnerEnd, RunnerProcess
from app.processes.triggerer.runners import Runners
from app.processes.triggerer.stuck_sources import Sources
from app.processes.triggerer.throttling import Throttling
from app.processes.triggerer.trigger_logs import TriggerLogs
from app.processes.triggerer.watchdog import Blocked, place_of
from app.processes.triggerer.writes import Writes
from app.services.triggers import ClaimedTrigger
from app.store.triggers import OwnedRow, ids_of
from watchers.masking import mask_forms

#: Longest that a trigger told to stop may take before its runner is replaced, in seconds.
LEAVE_SECONDS = 10.0
#: Pause after a start that could not be recorded, in seconds.
_RETRY_SECONDS = 1.0
#: How many start again in one transaction, and in one go.
_STARTED_TOGETHER = 200
#: Runners that have nothing to run any more are looked for not more often than this, in seconds.
_RETIRE_SECONDS = 0.1
#: How many of those that left are remembered for what they wrote.
_REMEMBERED = 100

_log = get_logger("triggerer")


class Supervisor:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        committer: Committer,
        runners: Runners,
        logs: TriggerLogs,
        writes: Writes,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._committer = committer
        self._runners = runners
        self._logs = logs
        self._writes = writes
        self._backoff = restart_backoff(settings)
        self._held: dict[int, Held] = {}
        self._older: dict[tuple[int, int], Held] = {}
        #: Those that left last: what they wrote may still be on its way.
        self._left: deque[Held] = deque(maxlen=_REMEMBERED)
        self._due: set[int] = set()
        #: Those that failed and have not been healthy for long since.
        self._failing: set[int] = set()
        self._retiring: asyncio.TimerHandle | None = None
        self._short_lives = ShortLives()
        self._aging = Aging()
        self._noise = LimitedLog(_log)
        #: Which triggers wait for a limit.
        self.throttling = Throttling(writes=writes, logs=logs, find=self._held.get)
        self._sources = Sources(settings=settings, clock=clock, writes=writes, logs=logs, noise=self._noise)
        self.is_closing = False
        #: Set while nothing is held.
        self.empty = asyncio.Event()
        self.empty.set()
        logs.heading = lambda trigger_id: None if (held := self._held.get(trigger_id)) is None else held.heading()
        runners.serve(on_frame=self._on_frame, on_output=self._on_output, on_end=self._on_end)

    # ------------------------------------------------------------------------------------------ what is held

    @property
    def held(self) -> Mapping[int, Held]:
        """The triggers of this triggerer by id."""
        return self._held

    def knows(self, row: OwnedRow) -> bool:
        """Whether the row is that of a trigger held here."""
        held = self._held.get(row.id)
        return held is not None and held.epoch == row.epoch

    def adopt(self, claimed: Iterable[ClaimedTrigger]) -> None:
        """Start what was claimed; one that is still here under an older epoch is closed before."""
        for each in claimed:
            if (older := self._held.get(each.id)) is not None:
                self.fenced(older)
            if (older := self._held.get(each.id)) is not None:
                self._older[older.id, older.epoch] = older
            held = Held.of(each)
            self._held[each.id] = held
            self._aging.came()
            self.empty.clear()
            self._logs.forget(each.id)
            if each.kwargs is None:
                self._fail(held, "its arguments cannot be decrypted: the encryption key was changed (NotDecryptable)")
            elif not self._still_closes(held):
                self._launch(held)

    def refresh(self, changed: Changed) -> None:
        """Follow what the rows say now: what is not ours or not wanted is closed, changed watchers are passed on."""
        rows, watchers = changed.rows, changed.watchers
        ids = (trigger_id for bucket in changed.buckets for trigger_id in ids_of(bucket))
        for held in [held for trigger_id in ids if (held := self._held.get(trigger_id)) is not None]:
            row = rows.get(held.id)
            if row is None or row.epoch != held.epoch:
                self.fenced(held)
            elif not row.wanted:
                self._leave(held, "nobody wants its events now")
            elif row.retry_requested and held.phase is Phase.PAUSED:
                self._logs.write(held.id, "it starts again now: a person asked for it")
                held.forgive()
                self._start_again(held)
            elif watchers.get(held.id, ()) != held.watchers:
                held.watchers = watchers.get(held.id, ())
                if held.runner is not None and held.phase is Phase.RUNNING:
                    frame = messages.Rewatch(trigger_id=held.id, epoch=held.epoch, watchers=watches(held.watchers))
                    held.runner.send(frame)

    def give_up(self, held: Held) -> None:
        """Close it for another triggerer, which has more room."""
        self._leave(held, "another triggerer has more room")

    def close_all(self) -> None:
        """Tell every trigger to stop; those that are not running are given up at once."""
        self.is_closing = True
        for held in list(self._held.values()):
            self._leave(held, "the triggerer stops")

    def forget_old_failures(self) -> None:
        """What has been running for long enough after a failure is healthy again."""
        for trigger_id in list(self._failing):
            held = self._held.get(trigger_id)
            if held is None:
                self._failing.discard(trigger_id)
            elif held.phase is Phase.RUNNING and self._was_healthy(held):
                self._failing.discard(trigger_id)
                held.failures = 0
                self._writes.source(held, error=None, failures=0)

    # -------------------------------------------------------------------------------------- starting and ending

    def _launch(self, held: Held) -> None:
        if self.is_closing or self._held.get(held.id) is not held or held.phase is Phase.LEAVING:
            return
        held.timer = None
        held.phase = Phase.RUNNING
        held.started_at = self._clock.monotonic()
        held.forget_parts()
        held.waits.clear()
        held.runner = self._runners.get(held.runner_key())
        held.runner.send(held.start_frame())

    def _start_again(self, held: Held) -> None:
        """Its time has come (or another's death took it along): start with its positions as of now."""
        held.timer = None
        held.runner = None
        held.phase = Phase.DUE
        if not self._due:
            self._writes.start(self._take_due, self._started, self._not_started)
        self._due.add(held.id)

    def _take_due(self) -> list[Held]:
        due = sorted(self._due)
        now, later = due[:_STARTED_TOGETHER], due[_STARTED_TOGETHER:]
        self._due = set(later)
        if later:
            self._writes.start(self._take_due, self._started, self._not_started)
        return [held for id_ in now if (held := self._held.get(id_)) is not None and held.phase is Phase.DUE]

    def _not_started(self, due: list[Held]) -> None:
        """It could not be written that they start: again in a while."""
        for held in due:
            if held.phase is Phase.DUE:
                held.phase = Phase.PAUSED
                held.timer = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._start_again, held)

    def _started(self, due: list[Held], positions: dict[int, Any]) -> None:
        for held in due:
            if held.phase is not Phase.DUE:
                continue
            if held.id not in positions:
                self.fenced(held)
                continue
            held.positions = positions[held.id]
            self._launch(held)

    def fenced(self, held: Held) -> None:
        """The database says that it is not ours: close it, silently."""
        held.is_ours = False
        self._leave(held, "it is not ours any more")

    def _leave(self, held: Held, reason: str) -> None:
        if held.phase is Phase.LEAVING:
            return
        held.cancel_timer()
        if self._logs.has_begun(held.id):
            self._logs.write(held.id, f"closing: {reason}")
        was_running, held.phase = held.phase is Phase.RUNNING, Phase.LEAVING
        if was_running and held.runner is not None and not held.runner.is_over:
            held.runner.send(messages.Stop(trigger_id=held.id, epoch=held.epoch))
            held.timer = asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._leaves_too_slowly, held)
        else:
            self._gone(held)

    def _leaves_too_slowly(self, held: Held) -> None:
        if held.runner is not None and not held.runner.is_over:
            self._tell(held, f"does not stop within {LEAVE_SECONDS:g} s: its runner is replaced")
            held.runner.kill()

    def _still_closes(self, held: Held) -> bool:
        """Whether an instance of an older epoch is not closed yet: two of one trigger never run at the same time."""
        return any(trigger_id == held.id for trigger_id, _ in self._older)

    def _older_closed(self, older: Held) -> None:
        older.cancel_timer()
        del self._older[older.id, older.epoch]
        held = self._held.get(older.id)
        if held is not None and held.phase is Phase.DUE and held.id not in self._due and not self._still_closes(held):
            self._launch(held)
        self._retire_idle_runners()

    def _gone(self, held: Held) -> None:
        held.cancel_timer()
        if self._held.get(held.id) is held:
            del self._held[held.id]
            self._aging.went()
            self._left.append(held)
        if not self._held:
            self.empty.set()
        if held.is_ours:
            self._writes.release(held)
        self._retire_idle_runners()

    def _retire_idle_runners(self) -> None:
        if self._retiring is None:
            self._retiring = asyncio.get_running_loop().call_later(_RETIRE_SECONDS, self._retire)

    def _retire(self) -> None:
        self._retiring = None
        if self.is_closing:
            return
        used = {id(held.runner) for held in (*self._held.values(), *self._older.values()) if held.runner is not None}
        self._runners.retire(lambda runner: id(runner) not in used)

    def _was_healthy(self, held: Held) -> bool:
        return self._clock.monotonic() - held.started_at >= self._settings.trigger_healthy_reset

    def _fail(self, held: Held, error: str, *, trace: str | None = None, quarantined: bool = False) -> None:
        if held.phase is Phase.RUNNING and self._was_healthy(held):
            held.failures = 0
        held.failures += 1
        self._failing.add(held.id)
        delay = self._backoff.delay(held.failures)
        held.phase = Phase.PAUSED
        held.runner = None
        held.timer = asyncio.get_running_loop().call_later(delay, self._start_again, held)
        self._writes.failed(held, error=error, delay=timedelta(seconds=delay), quarantined=quarantined)
        self._tell(held, f"failed and starts again in {delay:.1f} s: {error}", trace=trace)
        if held.is_alone:
            self._retire_idle_runners()

    def blocked(self, runner: RunnerProcess, blocked: Blocked, *, stack: str) -> None:
        """A runner does not turn: say whose fault it is and where."""
        held = self._held.get(blocked.trigger_id)
        place = place_of(stack)
        if held is None:
            text = f"runner {runner.key} has been blocked for {blocked.seconds:.1f} s by no trigger's task at {place}"
            self._noise.failed(f"runner {runner.key}", text, action="runner_blocked", pid=runner.pid)
            return
        message = f"blocks all triggers of its runner at {place}"
        if held.is_news(place, now=self._clock.monotonic()):
            self._writes.source(held, error=f"it {message}", failures=held.failures)
        self._tell(held, message, trace=stack)

    def _quarantine(self, held: Held, error: str, *, trace: str | None = None) -> None:
        """From now on it runs alone, after growing pauses."""
        held.is_alone = True
        self._fail(held, error, trace=trace, quarantined=True)

    def _tell(self, held: Held, message: str, *, trace: str | None = None) -> None:
        self._logs.write(held.id, message if trace is None else f"{message}\n{trace}", level="warning")
        self._noise.failed(
            f"trigger {held.id}",
            f"trigger {held.id} ({held.claimed.classpath}) {message}",
            action="trigger_trouble",
            trigger_id=held.id,
        )

    # -------------------------------------------------------------------------------------- what runners say

    def _on_frame(self, runner: RunnerProcess, frame: Any) -> None:
        match frame:
            case messages.Yielded():
                self._on_yield(runner, frame)
            case messages.Ended():
                if (older := self._older.get((frame.trigger_id, frame.epoch))) is not None:
                    self._older_closed(older)
                elif (held := self._current(runner, frame.trigger_id, frame.epoch)) is not None:
                    self._on_ended(held, frame)
            case messages.SourceState() | messages.SourceLag() | messages.Throttled():
                if (held := self._current(runner, frame.trigger_id, frame.epoch)) is not None:
                    listener: Any = self.throttling if isinstance(frame, messages.Throttled) else self._sources
                    listener.heard(held, frame)
            case messages.LogLine():
                name: int | str = frame.trigger_id or f"runner-{runner.key}"
                self._logs.write(name, frame.event, level=frame.level, logger=frame.logger, timestamp=frame.timestamp)
            case messages.Ready():
                return
            case _:
                raise TypeError(f"a runner sent {type(frame).__name__}")

    def _current(self, runner: RunnerProcess, trigger_id: int, epoch: int) -> Held | None:
        held = self._held.get(trigger_id)
        return held if held is not None and held.runner is runner and held.epoch == epoch else None

    def _on_yield(self, runner: RunnerProcess, frame: messages.Yielded) -> None:
        held = self._current(runner, frame.trigger_id, frame.epoch)
        if held is None or (delivery := held.completed_by(frame)) is None:
            return
        self._committer.offer(Waiting(receiver=runner, sequence=frame.sequence, delivery=delivery))

    def _on_ended(self, held: Held, frame: messages.Ended) -> None:
        if frame.error is not None and held.phase is Phase.LEAVING:
            self._logs.write(held.id, f"failed while it was closed: {frame.error}", level="warning")
        if held.phase is Phase.LEAVING:
            self._gone(held)
        elif frame.error is not None:
            self._fail(held, frame.error, trace=frame.traceback)
        else:
            held.phase = Phase.PAUSED
            held.runner = None
            pause = self._settings.event_trigger_return_pause
            held.timer = asyncio.get_running_loop().call_later(pause, self._start_again, held)

    def _on_output(self, runner: RunnerProcess, data: bytes) -> None:
        """Raw writes to descriptors 1 and 2. Whose they are is a guess: the secrets of all who may be are masked."""
        name = runner.sample().trigger_id or runner.key.trigger_id or f"runner-{runner.key}"
        text = data.decode("utf-8", "backslashreplace")
        known = (*self._held.values(), *self._older.values(), *self._left)
        present = {f for held in known if held.runner_key() == runner.key for f in held.secret_forms if f in text}
        self._logs.write_output(name, mask_forms(present)(text))

    # -------------------------------------------------------------------------------------- ends of runners

    def _on_end(self, runner: RunnerProcess, end: RunnerEnd) -> None:
        affected = [held for held in self._held.values() if held.runner is runner and held.phase is not Phase.PAUSED]
        culprit = end.blamed or (0 if end.expected else end.sample.trigger_id)
        hopeless = self._short_lives.keeps_dying(runner.key, end)
        if affected and not end.expected:
            _log.warning(
                f"runner {runner.key} ended ({shown(end)}); {len(affected)} triggers start again",
                action="runner_ended",
                pid=runner.pid,
                trigger_id=culprit or None,
            )
        for older in [older for older in self._older.values() if older.runner is runner]:
            self._older_closed(older)
        for held in affected:
            if held.phase is Phase.LEAVING:
                self._gone(held)
            elif held.id == culprit:
                self._punish(held, end)
            elif not culprit and not end.expected and (end.error is not None or hopeless):
                self._fail(held, f"its runner ended: {shown(end)}")
            else:
                self._start_again(held)

    def _punish(self, held: Held, end: RunnerEnd) -> None:
        """It executed when its runner died."""
        held.strikes = 1 if self._was_healthy(held) else held.strikes + 1
        self._writes.struck(held)
        if not held.is_alone and may_be_chance(end, strikes=held.strikes):
            self._logs.write(held.id, "its runner was killed while it executed; it starts again", level="warning")
            self._start_again(held)
            return
        verb = "blocked" if end.blamed else "ended"
        place = f" at {held.blocked_at}" if end.blamed and held.blocked_at else ""
        self._quarantine(held, f"it {verb} its runner{place} ({shown(end)})")
