"""One trigger in a runner: built, driven under its contract, closed."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Protocol

from app.domain.fan_out import Watchers, load_libraries
from app.kernel.crash_points import CrashPoint, reach
from app.processes.triggerer.limits import allowance_for
from app.processes.triggerer.messages import (
    Configure,
    Ended,
    Resolved,
    Rewatch,
    SourceLag,
    SourceState,
    Start,
    Stop,
    Throttled,
    Yielded,
)
from app.processes.triggerer.runner_child_attribution import Attribution
from app.processes.triggerer.runner_child_lag import LagReports, tells_lag
from app.processes.triggerer.runner_child_logs import Masker, one_line
from app.processes.triggerer.runner_child_pace import Pace
from app.processes.triggerer.runner_child_yields import Batch, NotAnEvent, Yields, chunks, default_source_of
from watchers.encoding import decode_kwargs
from watchers.errors import WatcherDeclarationError
from watchers.importing import import_class
from watchers.known_secrets import mask_known
from watchers.masking import masker_for, redact_uri
from watchers.triggers import BaseTrigger, SourceStatus

#: After a stop, how long a trigger may go on to acknowledge what was just resolved, in seconds.
ACKNOWLEDGE_SECONDS = 0.5
#: Longest ``aclose`` and ``cleanup`` together, in seconds.
CLEANUP_SECONDS = 5.0
#: Failures of a source beyond the first few are reported at powers of two.
_TELL_EACH_UP_TO = 3

_log = logging.getLogger("tidegate.runner")


class Runner(Protocol):
    """What a hosted trigger needs of its runner."""

    settings: Configure
    #: Classes of triggers by path, once they were imported.
    kinds: dict[str, type[BaseTrigger]]
    maskers: dict[int, Masker]
    attribution: Attribution

    async def send(self, frame: Yielded | Ended) -> None:
        """Send a frame; waits while the parent is slow."""
        ...

    def tell(self, frame: SourceState | SourceLag | Throttled | Ended) -> None:
        """Send a frame some time soon."""
        ...

    def next_sequence(self) -> int:
        """A number for the next yield."""
        ...

    def load(self, entry: str) -> None:
        """Import the pipeline file ``entry`` of this runner's bundle, once."""
        ...


class Hosted:
    """A trigger from Start to Ended. ``on_closed`` is called last."""

    # There may be tens of thousands, and most only wait: what few of them need is made when it is needed.
    __slots__ = (
        "_default_source",
        "_in_hand",
        "_is_closed",
        "_mask",
        "_on_closed",
        "_pace",
        "_resolution",
        "_runner",
        "_sequence",
        "_status",
        "_stopping",
        "_watchers",
        "_wish",
        "_yielded",
        "_yields",
        "epoch",
        "task",
        "trigger_id",
    )  # fmt: skip

    def __init__(self, start: Start, runner: Runner, *, on_closed: Callable[[Hosted], None]) -> None:
        self.trigger_id = start.trigger_id
        self.epoch = start.epoch
        self._runner = runner
        self._on_closed = on_closed
        self._yields: Yields | None = None
        self._watchers = start.watchers
        self._mask: Masker = redact_uri
        self._default_source = ""
        self._stopping = False
        self._resolution: asyncio.Future[bool] | None = None
        self._sequence = 0
        self._status = _Status(self)
        self._yielded = 0
        self._in_hand = False
        self._pace: Pace | None = None
        #: Events a second that the trigger's class asks for.
        self._wish: object = None
        self._is_closed = False
        self.task = runner.attribution.host(self._host(start), trigger_id=start.trigger_id)
        self.task.add_done_callback(self._task_done)

    def handle(self, frame: Resolved | Stop | Rewatch) -> None:
        """What the parent says about this trigger."""
        match frame:
            case Resolved():
                self._resolve(frame)
            case Stop() if frame.epoch == self.epoch:
                self._stop()
            case Rewatch() if frame.epoch == self.epoch:
                self._rewatch(frame.watchers)
            case _:
                return

    def _rewatch(self, watchers: Watchers) -> None:
        self._watchers = watchers
        if self._yields is not None:
            self._yields.watch(self._watchers)

    def _resolve(self, frame: Resolved) -> None:
        if frame.sequence == self._sequence and self._resolution is not None and not self._resolution.done():
            self._resolution.set_result(frame.fenced)

    def _stop(self) -> None:
        """Close soon: at once where it waits for its source, after the answer where something is in hand."""
        if not self._stopping:
            self._stopping = True
            if self._resolution is None:
                self.task.cancel()

    def abandon(self) -> None:
        """Close now, whatever is in hand: there is no lease."""
        self._stopping = True
        self.task.cancel()

    async def _host(self, start: Start) -> None:
        error: BaseException | None = None
        try:
            if self._watchers.schemas:
                # Off the loop: importing the library takes longer than a trigger may block its runner.
                await asyncio.to_thread(load_libraries)
            trigger = self._build(start)
            # Its texts would be most of what is kept of an idle trigger.
            del start
            await self._drive(trigger)
        except asyncio.CancelledError as cancelled:
            error = None if self._stopping else cancelled
        except BaseException as failure:  # noqa: BLE001 — an author's code may raise anything; it ends this trigger only
            error = None if self._stopping and isinstance(failure, (GeneratorExit, NotAnEvent)) else failure
        self._cancel_leftovers()
        # Before the parent hears of it, because it may start the trigger again at once.
        self._close_once()
        await self._runner.send(self._ended(error))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """A task cancelled before its first step never ran: then the end is told here."""
        if not self._is_closed:
            self._close_once()
            self._runner.tell(self._ended(None))
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("hosting trigger %s failed", self.trigger_id, exc_info=error)

    def _close_once(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_closed(self)

    def _cancel_leftovers(self) -> None:
        for task in self._runner.attribution.tasks_of(self.trigger_id):
            if task is not self.task:
                task.cancel()

    def _ended(self, error: BaseException | None) -> Ended:
        if error is None:
            return Ended(trigger_id=self.trigger_id, epoch=self.epoch, stopped=self._stopping)
        shown = "".join(traceback.format_exception_only(error)).strip()
        trace = "".join(traceback.format_exception(error))
        return Ended(
            trigger_id=self.trigger_id,
            epoch=self.epoch,
            error=one_line(self.masked(shown)),
            traceback=one_line(self.masked(trace)[-15_000:]),
        )

    def masked(self, text: str) -> str:
        """``text`` without secrets of this trigger's arguments, and of what code of this process looked up."""
        return self._mask(mask_known(text))

    def _build(self, start: Start) -> BaseTrigger:
        if start.entry is not None:
            self._runner.load(start.entry)
        kwargs = decode_kwargs(start.kwargs)
        kind = self._runner.kinds.get(start.classpath)
        if kind is None:
            self._mask = self._runner.maskers[start.trigger_id] = masker_for(kwargs)
            kind = import_class(start.classpath)
            if not issubclass(kind, BaseTrigger):
                raise WatcherDeclarationError(f"{start.classpath} is no trigger")
            self._runner.kinds[start.classpath] = kind
        self._mask = self._runner.maskers[start.trigger_id] = masker_for(kwargs, kind.public_kwargs)
        trigger = kind(**kwargs)
        trigger.trigger_id = start.trigger_id
        trigger.triggerer_job_id = self._runner.settings.job_id
        trigger.status = self._status
        if start.positions:
            trigger.positions = {
                source: {lane: json.loads(text) for lane, text in lanes.items()}
                for source, lanes in start.positions.items()
            }
        self._wish = kind.events_per_second
        self._default_source = default_source_of(trigger, classpath=start.classpath, identity=start.identity)
        return trigger

    async def _drive(self, trigger: BaseTrigger) -> None:
        generator: Any = None
        asking: asyncio.Task[None] | None = None
        try:
            generator = trigger.run()
            if not hasattr(generator, "__anext__"):
                _close_coroutine(generator)
                raise NotAnEvent(f"run() of {type(trigger).__name__} is no async generator: it never yields")
            if tells_lag(trigger):
                interval = self._runner.settings.lag_interval
                asking = asyncio.create_task(LagReports(trigger, interval=interval, tell=self._tell_lag).run())
            await self._follow(generator)
        finally:
            if self._pace is not None:
                self._pace.close()
            if asking is not None:
                asking.cancel()
            await self._close(trigger, generator)

    def _tell_lag(self, lag: int | None) -> None:
        self._runner.tell(
            SourceLag(
                trigger_id=self.trigger_id,
                epoch=self.epoch,
                lag=lag,
                yields=self._yielded,
                in_hand=self._in_hand,
                failures=self._status.failures,
            )
        )

    def _tell_throttled(self, reason: str | None) -> None:
        self._runner.tell(Throttled(trigger_id=self.trigger_id, epoch=self.epoch, reason=reason))

    async def _follow(self, generator: Any) -> None:
        """Ask for the next yield only once the last one is resolved."""
        while True:
            farewell = None
            if self._stopping:
                # It may acknowledge what was resolved last; then it is closed where it waits.
                farewell = asyncio.get_running_loop().call_later(ACKNOWLEDGE_SECONDS, self.task.cancel)
            try:
                yielded = await anext(generator)
            except StopAsyncIteration:
                return
            finally:
                if farewell is not None:
                    farewell.cancel()
            reach(CrashPoint.YIELDED)
            self._yielded += 1
            self._in_hand = True
            if self._stopping or await self._hand_over(yielded, generator):
                return
            self._in_hand = False
            reach(CrashPoint.RESOLVED)

    async def _hand_over(self, yielded: Any, generator: Any) -> bool:
        """Send what was yielded and wait for its resolution; true if fenced, or stopped before all of it was sent."""
        if self._yields is None:
            self._yields = Yields(self._runner.settings, default_source=self._default_source, mask=self.masked)
            self._yields.watch(self._watchers)
        if self._pace is None:
            allowance = allowance_for(self._runner.settings.events_per_second, self._wish)
            self._pace = Pace(allowance, tell=self._tell_throttled)
        try:
            async with aclosing(self._yields.batches(yielded)) as batches:
                async for batch in batches:
                    await self._pace.wait(max(1, len(batch.items)))
                    if not batch.items and not batch.positions:
                        await asyncio.sleep(0)  # One that yields nothing in a loop lets others have their turn.
                    elif await self._deliver(batch) or (self._stopping and not batch.is_last):
                        return True
        except NotAnEvent as error:
            raise NotAnEvent(f"{error}{_place_of(generator)}") from None
        return False

    async def _deliver(self, batch: Batch) -> bool:
        """Send what is stored together and wait for its resolution; true if fenced."""
        self._sequence = self._runner.next_sequence()
        self._resolution = asyncio.get_running_loop().create_future()
        try:
            parts = list(chunks(batch.items))
            for number, part in enumerate(parts, 1):
                is_last = number == len(parts)
                await self._runner.send(
                    Yielded(
                        trigger_id=self.trigger_id,
                        epoch=self.epoch,
                        sequence=self._sequence,
                        items=part,
                        positions=tuple(batch.positions.values()) if is_last else (),
                        last=is_last,
                    )
                )
            return await self._resolution
        finally:
            self._resolution = None

    async def _close(self, trigger: BaseTrigger, generator: Any) -> None:
        """``aclose`` and ``cleanup``, bounded; what they raise is told and changes nothing."""
        for name, close in (("aclose", getattr(generator, "aclose", None)), ("cleanup", trigger.cleanup)):
            if close is None:
                continue
            try:
                async with asyncio.timeout(CLEANUP_SECONDS):
                    await close()
            except asyncio.CancelledError:
                _log.warning("%s of trigger %s was cut short", name, self.trigger_id)
            except BaseException:  # noqa: BLE001 — an author's code
                _log.warning("%s of trigger %s failed", name, self.trigger_id, exc_info=sys.exc_info())


class _Status(SourceStatus):
    """Counts failures of the source and tells the parent about the first ones, then ever more rarely."""

    __slots__ = ("_hosted", "failures")

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self.failures = 0

    def failed(self, error: BaseException) -> None:
        self.failures += 1
        if self.failures <= _TELL_EACH_UP_TO or self.failures & (self.failures - 1) == 0:
            self._tell(one_line(self._hosted.masked(f"{type(error).__name__}: {error}")[:4000]))

    def recovered(self) -> None:
        if self.failures:
            self.failures = 0
            self._tell(None)

    def _tell(self, error: str | None) -> None:
        self._hosted._runner.tell(
            SourceState(
                trigger_id=self._hosted.trigger_id, epoch=self._hosted.epoch, failures=self.failures, error=error
            )
        )


def _place_of(generator: Any) -> str:
    frame = getattr(generator, "ag_frame", None)
    return "" if frame is None else f" ({frame.f_code.co_filename}:{frame.f_lineno})"


def _close_coroutine(value: Any) -> None:
    close = getattr(value, "close", None)
    if callable(close):
        close()
