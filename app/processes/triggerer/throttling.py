"""Which triggers wait at their yield because of a limit, and why: kept as the truth on their rows."""

from __future__ import annotations

from collections.abc import Callable

from app.processes.triggerer.held import Held
from app.processes.triggerer.messages import Throttled
from app.processes.triggerer.trigger_logs import TriggerLogs
from app.processes.triggerer.writes import Writes

_RATE = "rate"
_CONSUMER = "consumer"
CONSUMER_REASON = "a consumer has too many events waiting"


class Throttling:
    """Follows the triggers of one lease. What changes is logged and stored; what stays is not repeated."""

    def __init__(self, *, writes: Writes, logs: TriggerLogs, find: Callable[[int], Held | None]) -> None:
        self._writes = writes
        self._logs = logs
        self._find = find

    def heard(self, held: Held, frame: Throttled) -> None:
        """Its runner says that it waits for its own rate, or (no reason) does so no more."""
        self._change(held, _RATE, frame.reason)

    def pressed(self, trigger_id: int, *, waits: bool) -> None:
        """It waits for a consumer, or no more."""
        if (held := self._find(trigger_id)) is not None:
            self._change(held, _CONSUMER, CONSUMER_REASON if waits else None)

    def _change(self, held: Held, kind: str, reason: str | None) -> None:
        if held.waits.get(kind) == reason:
            return
        if reason is None:
            del held.waits[kind]
        else:
            held.waits[kind] = reason
        shown = "; ".join(held.waits[each] for each in sorted(held.waits)) or None
        self._logs.write(
            held.id, "it waits for nothing any more" if shown is None else f"it waits at its yield: {shown}"
        )
        self._writes.throttled(held, reason=shown)
