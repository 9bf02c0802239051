"""Named places at which a test has a process killed, or held, to prove that nothing is lost there.

They are there only for a process that is started with :data:`VARIABLE` set to a folder; otherwise :func:`reach` is a
function that does nothing. In that folder a file named after a point, holding an :class:`Order`, arms it. The order is
carried out once, by the process that passes the point for the n-th time since; it is renamed before, so that whoever
starts again goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

#: Names the folder of orders. Children of a process inherit it.
VARIABLE = "TIDEGATE_TEST_CRASH_POINTS"
_LOOK_PAUSE = 0.005


class CrashPoint(StrEnum):
    """Where a process can be ended. *Uncommitted*: the last statement was sent, the commit was not."""

    CLAIM_UNCOMMITTED = "claim-uncommitted"
    CLAIMED = "claimed"
    #: The generator yielded: what it yielded before is acknowledged, this is not told to the parent yet.
    YIELDED = "yielded"
    #: The parent is about to store it.
    RECEIVED = "received"
    STORE_UNCOMMITTED = "store-uncommitted"
    #: Committed; the runner does not know.
    STORED = "stored"
    #: The runner knows; the generator has not gone on to acknowledge.
    RESOLVED = "resolved"
    RELEASE_UNCOMMITTED = "release-uncommitted"
    RELEASED = "released"
    PLAN_UNCOMMITTED = "plan-uncommitted"
    PLANNED = "planned"
    FINISH_UNCOMMITTED = "finish-uncommitted"
    FINISHED = "finished"
    POST_UNCOMMITTED = "post-uncommitted"
    #: Committed; the caller has no answer.
    POSTED = "posted"
    SYNC_UNCOMMITTED = "sync-uncommitted"
    SYNCED = "synced"


#: Passed by a runner. What is to be killed there is its triggerer; the runner goes with it.
IN_RUNNER = frozenset({CrashPoint.YIELDED, CrashPoint.RESOLVED})


class Action(StrEnum):
    """What happens at an armed point."""

    KILL = "kill"
    #: The thread stands still until a file ``<token>.go`` appears.
    HOLD = "hold"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """``victim`` is the pid that must pass (of the triggerer, for a point in its runner), None for whoever does."""

    token: str
    action: Action = Action.KILL
    passing: int = 1
    victim: int | None = None


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """Left as ``<token>.fired``: who passed, and when by ``time.monotonic()``."""

    point: CrashPoint
    pid: int
    at: float


class _Armed:
    """Looks for an order at every passing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._passings: dict[str, int] = {}

    def __call__(self, point: CrashPoint) -> None:
        try:
            order = msgspec.json.decode((self._folder / point.value).read_bytes(), type=Order)
        except FileNotFoundError:
            return
        pid = os.getppid() if point in IN_RUNNER else os.getpid()
        if order.victim not in (None, pid):
            return
        passings = self._passings[order.token] = self._passings.get(order.token, 0) + 1
        if passings >= order.passing and self._take(point, order, pid=pid):
            self._carry_out(order, pid=pid)

    def _take(self, point: CrashPoint, order: Order, *, pid: int) -> bool:
        """Whether the order is ours: of several that pass at once one is."""
        draft = self._folder / f"{order.token}.draft"
        try:
            (self._folder / point.value).rename(draft)
        except FileNotFoundError:
            return False
        draft.write_bytes(msgspec.json.encode(Fired(point=point, pid=pid, at=time.monotonic())))
        draft.rename(self._folder / f"{order.token}.fired")
        return True

    def _carry_out(self, order: Order, *, pid: int) -> None:
        if order.action is Action.KILL:
            os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        while not (self._folder / f"{order.token}.go").exists():
            time.sleep(_LOOK_PAUSE)


def _nothing(point: CrashPoint) -> None:
    """What a point is outside of tests."""


def _choose(folder: str | None) -> Callable[[CrashPoint], None]:
    return _Armed(Path(folder)) if folder else _nothing


#: Called at each point. Chosen once, when the process starts.
reach: Callable[[CrashPoint], None] = _choose(os.environ.get(VARIABLE))
IS_ARMED = reach is not _nothing
