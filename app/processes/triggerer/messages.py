"""Frames between the triggerer and its runners.

The parent decides, the runner runs. ``epoch`` names the instance of a trigger: what a runner says under another epoch
than the parent's is out of date. ``sequence`` names one yield within a runner.
"""

from __future__ import annotations

import msgspec

from app.domain.deliveries import DeliveryItem, Position
from app.domain.fan_out import Watchers

# --------------------------------------------------------------------------------------------- from parent to runner


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first frame. Sizes are bytes, durations seconds; ``bundle_root`` is the folder of custom code."""

    job_id: int
    max_payload_bytes: int
    max_payload_depth: int
    raw_limit: int
    lease_seconds: float
    stop_seconds: float
    bundle_root: str | None = None
    lag_interval: float = 5.0
    #: Limits of one trigger: its rate (0: none), and what of one yield is stored together.
    events_per_second: float = 0.0
    pending_events: int = 5000
    pending_bytes: int = 32 * 1024 * 1024


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Build the trigger and run it. ``positions`` are JSON texts by source and lane."""

    trigger_id: int
    epoch: int
    classpath: str
    kwargs: str
    identity: str
    watchers: Watchers
    positions: dict[str, dict[str, str]] = {}
    entry: str | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Close the trigger; what it yielded before is still resolved, and it may acknowledge that."""

    trigger_id: int
    epoch: int


class Rewatch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The trigger's watchers changed."""

    trigger_id: int
    epoch: int
    watchers: Watchers


class Resolved(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What was yielded under ``sequence`` is resolved; or ``fenced``: close the generator at its yield."""

    trigger_id: int
    sequence: int
    fenced: bool = False


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The parent's lease was renewed. Without one for ``lease_seconds`` the runner closes everything and ends."""


class Warm(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Triggers of these classes may come: import them when there is time."""

    classpaths: tuple[str, ...]


FromParent = Configure | Start | Stop | Rewatch | Resolved | Lease | Warm

# --------------------------------------------------------------------------------------------- from runner to parent


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The runner serves. ``thread`` is the identifier of the thread that runs the triggers, as tracebacks show it;
    ``rss_bytes`` its resident memory, where the system tells it."""

    pid: int
    thread: str
    rss_bytes: int | None = None


class Yielded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A part of what a trigger yielded; the parts of one ``sequence`` come in order and the ``last`` completes it."""

    trigger_id: int
    epoch: int
    sequence: int
    items: tuple[DeliveryItem, ...] = ()
    positions: tuple[Position, ...] = ()
    last: bool = True


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The trigger is closed: it was stopped or returned (no ``error``), or failed. Texts are masked."""

    trigger_id: int
    epoch: int
    stopped: bool = False
    error: str | None = None
    traceback: str | None = None


class SourceState(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The trigger's source fails, ``failures`` times in a row by now, or (no ``error``) answers again."""

    trigger_id: int
    epoch: int
    failures: int
    error: str | None = None


class SourceLag(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``lag`` messages wait at the trigger's source (None: unknown).

    ``yields`` counts what the trigger yielded since it was started; ``in_hand`` is whether the last of it is not
    resolved yet, so that the wait is ours; ``failures`` how often in a row its source failed, by its own account.
    """

    trigger_id: int
    epoch: int
    lag: int | None
    yields: int
    in_hand: bool
    failures: int


class Throttled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The trigger waits at its yield, because of its rate; or (no ``reason``) no more."""

    trigger_id: int
    epoch: int
    reason: str | None = None


class LogLine(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A line for the trigger's log (0: the runner's own). ``timestamp`` is Unix time; the text is masked."""

    trigger_id: int
    level: str
    logger: str
    event: str
    timestamp: float


FromRunner = Ready | Yielded | Ended | SourceState | SourceLag | Throttled | LogLine
