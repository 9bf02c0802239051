"""Triggers: what waits for something outside, written as a specification.

A trigger is built anew from ``serialize()`` in a runner process, possibly on another machine, any number of times.

The contract of :meth:`BaseTrigger.run`:

1. It is an async generator. It yields one :class:`TriggerEvent`, or a list of events and :class:`PositionUpdate`, which
   is committed as one unit and in order.
2. **The statement after a ``yield`` runs only once everything yielded is resolved**: stored, filtered out, recognised
   as a duplicate, or dead-lettered. Acknowledging to the broker after the yield is therefore right by construction.
3. A slow database makes the ``yield`` slow; the trigger reads no further meanwhile. That is the back-pressure.
4. A trigger that lost its owner is closed at its ``yield`` (``GeneratorExit``): nothing after it runs.
5. :meth:`BaseTrigger.cleanup` is called on every exit the process survives. :meth:`BaseTrigger.on_kill` is called only
   when a user cleared or marked the task that waits, never on restart, shutdown or take-over.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, cast


@dataclass(frozen=True, slots=True)
class TriggerEvent:
    """Something happened.

    ``payload`` is a JSON value (see ``watchers.payloads`` for what is converted and what is refused).
    ``key`` names the message within its source, stable over redeliveries; ``None`` means that the source has no
    identity and each yield is a new event.
    ``source`` names broker and queue; ``None`` means :meth:`BaseEventTrigger.default_source`.
    ``raw`` is the undecoded message, kept (up to a limit) with a dead letter if the payload is refused.
    """

    payload: Any
    key: str | None = None
    source: str | None = field(default=None, kw_only=True)
    raw: bytes | None = field(default=None, kw_only=True, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSuccessEvent(TriggerEvent):
    """Ends the waiting task as succeeded, without a worker. To an asset it is an event like any other."""

    payload: Any = "success"
    xcoms: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailedEvent(TriggerEvent):
    """Ends the waiting task's attempt as failed, without a worker; its retries count."""

    payload: Any = "failed"
    xcoms: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSkippedEvent(TriggerEvent):
    """Ends the waiting task as skipped, without a worker."""

    payload: Any = "skipped"
    xcoms: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionUpdate:
    """Where to resume in a source, written in the transaction of the events it is yielded with.

    ``lanes`` maps a lane (a Kafka partition, say) to a JSON value that only the trigger interprets.
    """

    source: str
    lanes: Mapping[str, Any]


#: Longest that :meth:`BaseEventTrigger.lag` may take, in seconds.
LAG_DEADLINE = 5.0

Log: TypeAlias = "logging.Logger | logging.LoggerAdapter[logging.Logger]"
#: What ``run()`` may yield. An empty sequence is resolved at once.
Yielded: TypeAlias = TriggerEvent | PositionUpdate | Sequence[TriggerEvent | PositionUpdate]


class SourceStatus:
    """How a trigger tells its runner that its source fails or heals, without ending. Harmless outside a runner."""

    __slots__ = ()

    def failed(self, error: BaseException) -> None:
        """One more consecutive failure to reach the source. Counted and log-limited by the runner."""

    def recovered(self) -> None:
        """The source answers again; resets the count."""


class _OwnLog:
    """The log of a trigger, made when it is asked for: most of thousands of idle triggers never ask."""

    def __get__(self, trigger: BaseTrigger | None, kind: type[BaseTrigger]) -> Log:
        if trigger is None or trigger.trigger_id is None:
            return logging.getLogger("tidegate.trigger")
        logger = logging.getLogger(f"tidegate.trigger.{kind.__name__}")
        return logging.LoggerAdapter(logger, {"trigger_id": trigger.trigger_id})


class BaseTrigger:
    """Waits for something and says so by yielding :class:`TriggerEvent`.

    A subclass need not call ``super().__init__()``.
    """

    #: Injected by the runner before ``run()``; class-level defaults make a bare object usable in tests.
    trigger_id: int | None = None
    triggerer_job_id: int | None = None
    task_instance: Any = None
    status: SourceStatus = SourceStatus()
    #: Lines go to the trigger's own log, from whatever task or thread they come.
    log: Log = cast("Log", _OwnLog())
    #: Stored positions by source and lane, as of this start (see :class:`PositionUpdate`).
    positions: Mapping[str, Mapping[str, Any]] = {}

    #: Which triggerers may run it: those started with ``--queues`` that name this one; None: those without. A class, a
    #: constructor or the author may set it; it is no part of what the trigger is.
    trigger_queue: str | None = None

    #: Names of kwargs whose values may be shown in errors and logs; all other texts are masked.
    public_kwargs: ClassVar[frozenset[str]] = frozenset()
    #: Modules that ``run()`` imports: a process that may be given such a trigger imports them ahead.
    runs_with: ClassVar[tuple[str, ...]] = ()

    #: Most events a second, if less than the setting allows; what comes faster waits at its yield.
    events_per_second: ClassVar[float | None] = None

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return ``(import path of the class, keyword arguments)`` from which an equal trigger can be built."""
        raise NotImplementedError

    @abstractmethod
    def run(self) -> AsyncIterator[Yielded]:
        """Yield events; see the contract in the module's docstring."""
        raise NotImplementedError

    async def cleanup(self) -> None:
        """Release what ``run()`` holds. Called on every exit; exceptions are logged and ignored."""

    async def on_kill(self) -> None:
        """Cancel the remote work: a user cleared or marked the waiting task. Bounded in time by a setting."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class BaseEventTrigger(BaseTrigger):
    """A trigger that may drive an asset: it runs for ever and each yield is one event.

    Only such triggers are accepted by ``AssetWatcher``: a plain one, written for a single waiting task, would report
    the same condition over and over.
    """

    #: Whether the source never offers a message again that was acknowledged or passed by a stored position. Where it
    #: does (a folder, a listing), what was seen is remembered as long as the trigger lives, else for a limited time.
    acknowledges: ClassVar[bool] = False

    def default_source(self) -> str | None:
        """The ``source`` of events that name none. ``None``: class path and identity of the kwargs."""
        return None

    async def lag(self) -> int | None:
        """How many messages wait at the source that :meth:`run` has not yielded yet; ``None`` if that is unknown.

        A trigger that overrides this is asked every few seconds beside ``run()``, on the same loop. It must be cheap;
        an answer that takes longer than :data:`LAG_DEADLINE` counts as unknown, and so does an exception. A trigger
        that reports messages and yields nothing for 30 s (a setting), while nothing it yielded is in hand, counts as
        stuck: it is closed, started again, and shown as degraded until it makes progress. So answer 0 while the source
        itself says that it has nothing, whatever an approximate count says.
        """
        return None
