"""The rules of the memory broker's queues, by a machine that compares them with a plain list."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from providers.memory.queues import Message, Queue

LANES = st.sampled_from([None, "a", "b"])
HOLDERS = st.integers(1, 3)


class QueueMachine(RuleBasedStateMachine):
    """Publishes, receives, returns and acknowledges; the model is a list of (sequence, lane) and who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.alive: dict[str, Message] = {}
        self.held: dict[str, int] = {}
        self.now = 0.0

    @rule(lane=LANES)
    def publish(self, lane: str | None) -> None:
        message = self.queue.publish(b"", lane=lane)
        self.alive[message.id] = message

    @rule(holder=HOLDERS, limit=st.integers(1, 4))
    def receive(self, holder: int, limit: int) -> None:
        busy = {self.alive[key].lane for key in self.held} - {None}
        free = [m for key, m in self.alive.items() if key not in self.held and m.lane not in busy]
        expected = sorted(free, key=lambda message: message.sequence)[:limit]
        taken = self.queue.receive(limit, holder=holder, deadline=self.now + 10)
        assert [message.id for message in taken] == [message.id for message in expected]
        self.held.update({message.id: holder for message in taken})

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def acknowledge(self, data: Any) -> None:
        key = data.draw(st.sampled_from(sorted(self.alive, key=lambda key: self.alive[key].sequence)))
        assert self.queue.acknowledge([key, "unknown"]) == 1
        del self.alive[key]
        self.held.pop(key, None)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), holder=HOLDERS)
    def release_one(self, data: Any, holder: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.held, key=lambda key: self.alive[key].sequence)))
        self.queue.release([key], holder=holder)
        if self.held[key] == holder:
            del self.held[key]

    @rule(holder=HOLDERS)
    def holder_goes(self, holder: int) -> None:
        self.queue.release_holder(holder)
        self.held = {key: who for key, who in self.held.items() if who != holder}

    @rule()
    def time_passes(self) -> None:
        self.now += 11
        assert self.queue.expire(self.now) == bool(self.held)
        self.held.clear()

    @invariant()
    def counts_agree(self) -> None:
        counts = self.queue.statistics()
        assert (counts.visible, counts.in_flight) == (len(self.alive) - len(self.held), len(self.held))


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueues = QueueMachine.TestCase
