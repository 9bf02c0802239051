"""The queues of the memory broker: pure state, no input or output.

Rules:

* A message is visible, in flight (handed to one holder), or gone (acknowledged).
* Visible messages are handed out in the order they were published; one that returns keeps its place.
* A message in flight returns when its holder goes, releases it, or lets its visibility time run out.
* Messages of one lane are handed out in order, and to one holder at a time: while any message of a lane is in flight,
  no other of that lane is handed out. Messages without lane stand alone.
* An acknowledgement names messages, not the holder: it counts whoever holds the message now.
"""

from __future__ import annotations

import heapq
import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Who holds messages: an opaque number, one per connection.
Holder = int


@dataclass(slots=True, kw_only=True)
class Message:
    """One message and where it stands. ``deadline`` is meaningful only while ``holder`` is set."""

    sequence: int
    body: bytes = field(repr=False)
    lane: str | None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    attempts: int = 0
    holder: Holder | None = None
    deadline: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """How many messages wait and how many are handed out but not yet acknowledged."""

    visible: int
    in_flight: int


class Queue:
    """One named queue; see the module's rules. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}
        self._ready: list[tuple[int, str]] = []
        self._parked: dict[str, deque[str]] = {}
        self._flights: dict[str, Message] = {}
        self._lanes_out: dict[str, int] = {}
        self._sequence = 0

    def publish(self, body: bytes, *, lane: str | None = None) -> Message:
        """Append a message."""
        self._sequence += 1
        message = Message(sequence=self._sequence, body=body, lane=lane)
        self._messages[message.id] = message
        heapq.heappush(self._ready, (message.sequence, message.id))
        return message

    def receive(self, limit: int, *, holder: Holder, deadline: float) -> list[Message]:
        """Hand at most ``limit`` messages to ``holder`` until ``deadline``."""
        taken: list[Message] = []
        lanes_of_this_call: set[str] = set()
        while self._ready and len(taken) < limit:
            _, identifier = heapq.heappop(self._ready)
            message = self._messages.get(identifier)
            if message is None or message.holder is not None:
                continue
            lane = message.lane
            if lane is not None and lane in self._lanes_out and lane not in lanes_of_this_call:
                self._parked.setdefault(lane, deque()).append(identifier)
                continue
            if lane is not None:
                lanes_of_this_call.add(lane)
                self._lanes_out[lane] = self._lanes_out.get(lane, 0) + 1
            message.holder, message.deadline = holder, deadline
            message.attempts += 1
            self._flights[identifier] = message
            taken.append(message)
        return taken

    def acknowledge(self, identifiers: Iterable[str]) -> int:
        """Forget these messages, whoever holds them; unknown ones are ignored. Returns how many were known."""
        known = 0
        for identifier in identifiers:
            message = self._messages.pop(identifier, None)
            if message is not None:
                known += 1
                self._land(message)
        return known

    def release(self, identifiers: Iterable[str], *, holder: Holder) -> None:
        """Return those of these messages that ``holder`` has."""
        for identifier in list(identifiers):
            message = self._flights.get(identifier)
            if message is not None and message.holder == holder:
                self._give_back(message)

    def release_holder(self, holder: Holder | None = None) -> None:
        """Return everything ``holder`` has; everything in flight for ``None``."""
        for message in list(self._flights.values()):
            if holder is None or message.holder == holder:
                self._give_back(message)

    def extend(self, identifiers: Iterable[str], *, holder: Holder, deadline: float) -> None:
        """Put off the return of those of these messages that ``holder`` has."""
        for identifier in identifiers:
            message = self._flights.get(identifier)
            if message is not None and message.holder == holder:
                message.deadline = deadline

    def expire(self, now: float) -> bool:
        """Return what has been held beyond its deadline; whether there was any."""
        late = [message for message in self._flights.values() if message.deadline <= now]
        for message in late:
            self._give_back(message)
        return bool(late)

    def next_deadline(self) -> float | None:
        """When :meth:`expire` has something to do next, if ever."""
        return min((message.deadline for message in self._flights.values()), default=None)

    def statistics(self) -> QueueStatistics:
        """Counts as of now."""
        flying = len(self._flights)
        return QueueStatistics(visible=len(self._messages) - flying, in_flight=flying)

    def _give_back(self, message: Message) -> None:
        self._land(message)
        heapq.heappush(self._ready, (message.sequence, message.id))

    def _land(self, message: Message) -> None:
        """End the flight of ``message``, if it is in flight, and let its lane go on with the last one that lands."""
        if self._flights.pop(message.id, None) is None:
            return
        message.holder = None
        lane = message.lane
        if lane is None:
            return
        self._lanes_out[lane] -= 1
        if self._lanes_out[lane] == 0:
            del self._lanes_out[lane]
            for identifier in self._parked.pop(lane, ()):
                waiting = self._messages.get(identifier)
                if waiting is not None:
                    heapq.heappush(self._ready, (waiting.sequence, identifier))
