"""The machine and its load: what figures must be read with."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where and when something was measured. ``load`` is the load average of the last minute before it."""

    processor: str
    cores: int
    memory_gib: float
    python: str
    load: float

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        return cls(
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            python=platform.python_version(),
            load=round(os.getloadavg()[0], 2),
        )

    @property
    def busy(self) -> bool:
        """Whether somebody else is using so much of it that latencies say little."""
        return self.load > self.cores / 4

    def told(self) -> str:
        """One line for people."""
        return (
            f"{self.cores} cores of {self.processor}, {self.memory_gib:g} GiB, Python {self.python}, "
            f"load average {self.load:g}"
        )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
