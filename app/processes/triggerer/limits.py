"""How much a trigger may do, and whose turn it is: plain rules without clocks or loops of their own."""

from __future__ import annotations

from dataclasses import dataclass

#: What a trigger did not use of its rate within this time it may use later, in seconds.
BURST_SECONDS = 10.0
#: So many bytes of a delivery count like an event when turns are given.
_BYTES_AN_EVENT = 4096
_REMEMBERED = 4096


@dataclass(slots=True, kw_only=True)
class Allowance:
    """A rate in events a second; 0 is no limit. What is spent beyond it is waited for before the next may come."""

    rate: float
    _balance: float | None = None
    _at: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next event may come, 0 if it may come now."""
        return 0.0 if self.rate <= 0 else max(0.0, -self._refilled(now) / self.rate)

    def spend(self, events: int, now: float) -> None:
        """So many events came."""
        if self.rate > 0:
            self._balance = self._refilled(now) - events

    def _refilled(self, now: float) -> float:
        most = self.rate * BURST_SECONDS
        balance = most if self._balance is None else min(most, self._balance + (now - self._at) * self.rate)
        self._balance, self._at = balance, now
        return balance


def allowance_for(setting: float, wish: object) -> Allowance:
    """The rate of the setting, or what the trigger's class wishes if that is lower; 0 is no limit."""
    is_number = isinstance(wish, (int, float)) and not isinstance(wish, bool)
    wished = float(wish) if is_number and wish > 0 else 0.0  # type: ignore[operator,arg-type]
    rates = [rate for rate in (setting, wished) if rate > 0]
    return Allowance(rate=min(rates, default=0.0))


class Turns:
    """An order in which each trigger gets its share: who had less so far comes before who had more.

    Start-time fair queueing: a delivery's turn is where the trigger's last one ended, or where the queue is now.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ends: dict[int, float] = {}

    def take(self, trigger_id: int, *, events: int, size: int) -> float:
        """The turn of a delivery of so many events and bytes; the lowest comes first."""
        turn = max(self._now, self._ends.get(trigger_id, 0.0))
        self._ends[trigger_id] = turn + max(1, events) + size / _BYTES_AN_EVENT
        if len(self._ends) > _REMEMBERED:
            self._ends = {id_: end for id_, end in self._ends.items() if end > self._now}
        return turn

    def reached(self, turn: float) -> None:
        """Deliveries up to this turn were taken."""
        self._now = max(self._now, turn)
