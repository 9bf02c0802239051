"""A few numbers in memory shared by the triggerer and one of its runners.

The runner writes which trigger is executing right now; the parent reads it, also when the runner is blocked, stopped or
dead. Each number is eight bytes, aligned, so a reader never sees half of one.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass

SIZE = 64
TRIGGER, STEP, BEAT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Sample:
    """What the runner is doing: ``trigger_id`` 0 is none; ``step`` counts steps begun, ``beat`` turns of the loop."""

    trigger_id: int
    step: int
    beat: int


class Slot:
    """One side's view of the shared memory."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self.numbers = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls) -> tuple[Slot, int]:
        """New memory, and the descriptor to hand to the runner (the caller closes it)."""
        with tempfile.TemporaryFile() as file:
            file.truncate(SIZE)
            descriptor = os.dup(file.fileno())
        return cls(descriptor), descriptor

    def sample(self) -> Sample:
        """What the other side says now."""
        return Sample(self.numbers[TRIGGER], self.numbers[STEP], self.numbers[BEAT])

    def close(self) -> None:
        """Give this side's mapping back."""
        self.numbers.release()
        self._memory.close()
