"""Is a runner blocked, by which trigger, and for how long? Judged from outside, from what the runner last said it does.

Time counts against a trigger only while its process could have run: not while it was stopped (SIGSTOP), not while it
wanted the processor and did not get it, and not while this process was itself held up.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from app.processes.triggerer.slot import Sample

#: Pause between two looks, in seconds. A look that comes later than this counts as only two of them.
LOOK_EVERY = 0.1
#: A runnable thread that got less of a processor than this was starved.
_FAIR_SHARE = 0.5
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """The runner's main thread: its state letter (``R S D T`` …) and the processor time it used, in seconds."""

    state: str
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The runner has been at one step for so many ``seconds``; ``trigger_id`` 0: not by a trigger's task."""

    trigger_id: int
    seconds: float
    is_first: bool


def thread_state(pid: int) -> ThreadState | None:
    """What the kernel says about the main thread of ``pid``; None where it says nothing."""
    if sys.platform != "linux":
        return None
    try:
        text = Path(f"/proc/{pid}/task/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return ThreadState(state=fields[0], used=(int(fields[11]) + int(fields[12])) / _TICKS)


class BlockWatch:
    """Watches one runner. ``warning`` is the blocked time, in seconds, from which :meth:`look` answers."""

    def __init__(self, *, warning: float) -> None:
        self._warning = warning
        self._last: Sample | None = None
        self._used: float | None = None
        self._blocked = 0.0
        self._told = False

    def is_suspect(self, sample: Sample) -> bool:
        """Nothing moved since the last look, so the thread's state is worth asking for."""
        return sample == self._last

    def look(self, sample: Sample, thread: ThreadState | None, *, elapsed: float) -> Blocked | None:
        """One look; ``elapsed`` seconds after the last one."""
        if sample != self._last or sample.beat == 0:
            self._last, self._blocked, self._told, self._used = sample, 0.0, False, None
            return None
        counted = min(elapsed, 2 * LOOK_EVERY)
        if thread is None or self._was_able(thread, elapsed):
            self._blocked += counted
        if thread is not None:
            self._used = thread.used
        if self._blocked < self._warning:
            return None
        is_first, self._told = not self._told, True
        return Blocked(trigger_id=sample.trigger_id, seconds=self._blocked, is_first=is_first)

    def _was_able(self, thread: ThreadState, elapsed: float) -> bool:
        if thread.state in "TtXZ":
            return False
        if thread.state != "R":
            return True
        return self._used is not None and thread.used - self._used >= _FAIR_SHARE * elapsed - 1 / _TICKS


_LOCATION = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')


def section_of(traceback: str, thread: str) -> str:
    """The part of a traceback of all threads that is about ``thread``, most recent call first."""
    for section in re.split(r"\n(?=(?:Current thread|Thread) 0x)", traceback.strip()):
        if thread in section.partition("\n")[0]:
            return section
    return traceback.strip()


def place_of(section: str) -> str:
    """``file:line in function`` of the innermost call that is neither the standard library's nor ours."""
    found = [
        (match["file"], f"{match['file']}:{match['line']} in {match['function']}")
        for match in _LOCATION.finditer(section)
    ]
    ours = str(Path(__file__).parent)
    library = str(Path(os.__file__).parent)
    for file, place in found:
        if not file.startswith((ours, "<")) and (not file.startswith(library) or "site-packages" in file):
            return place
    return found[0][1] if found else ""
