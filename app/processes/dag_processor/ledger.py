"""Which pipeline files have to be read, and when.

A file is read once it and every module it loaded have been still for a while. What was loaded is remembered by stamp
and by content, so that a touched file is not read again, and by outcome: a file that was refused is tried again when
anything else changed, since the cause may lie there (a missing helper, a dag_id that another file gave up).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.processes.dag_processor.folder import Stamp

Stamps = Mapping[str, Stamp | None]


@dataclass(slots=True)
class _Entry:
    modules: tuple[str, ...]
    current: dict[str, Stamp | None]
    #: When ``current`` was first seen, in monotonic seconds.
    since: float
    #: What was there when the file was last read; None before.
    read: dict[str, Stamp | None] | None = None
    digest: str | None = None
    refused: bool = False
    #: Read it although nothing about it changed.
    forced: bool = False
    busy: bool = False

    @property
    def is_due(self) -> bool:
        return not self.busy and (self.forced or self.read != self.current)


@dataclass(slots=True)
class FileLedger:
    """All pipeline files that are there. ``still`` is how long a file must not change before it is read (seconds)."""

    still: float
    _entries: dict[str, _Entry] = field(default_factory=dict)

    @property
    def modules(self) -> set[str]:
        """Every file that some pipeline file loaded."""
        return {module for entry in self._entries.values() for module in entry.modules}

    def observe(self, files: Mapping[str, Stamp], modules: Stamps, *, now: float, wall: float) -> tuple[str, ...]:
        """Take in what is on disk now; returns the files that are gone.

        ``now`` is the monotonic and ``wall`` the clock's time, both in seconds: a file that was written long ago need
        not be waited for when it is seen for the first time.
        """
        gone = tuple(sorted(self._entries.keys() - files.keys()))
        for path in gone:
            del self._entries[path]
        for path, stamp in files.items():
            entry = self._entries.get(path)
            if entry is None:
                age = min(max(wall - stamp.changed / 1e9, 0.0), self.still)
                self._entries[path] = _Entry(modules=(path,), current={path: stamp}, since=now - age)
                continue
            current = {module: files[module] if module in files else modules.get(module) for module in entry.modules}
            if current != entry.current:
                entry.current, entry.since = current, now
        if gone:
            self.retry_refused()
        return gone

    def due(self, *, now: float) -> list[str]:
        """The files to read now, those that have waited longest first."""
        ready = [
            (entry.since, path)
            for path, entry in self._entries.items()
            if entry.is_due and now - entry.since >= self.still
        ]
        return [path for _, path in sorted(ready)]

    def next_due(self) -> float | None:
        """When (monotonic) the next file will have been still for long enough; None if none waits."""
        return min((entry.since + self.still for entry in self._entries.values() if entry.is_due), default=None)

    def begin(self, path: str) -> tuple[str, ...]:
        """The file is being read from now on; the modules it is known to load."""
        entry = self._entries[path]
        entry.busy, entry.forced = True, False
        return entry.modules

    def unchanged(self, path: str, *, digest: str) -> bool:
        """Whether the file loaded exactly this content last time, so that reading it again is needless."""
        entry = self._entries.get(path)
        return entry is not None and not entry.refused and entry.digest == digest

    def finish(self, path: str, *, stamps: Stamps, digest: str | None, refused: bool) -> None:
        """The file was read when its modules had these stamps and this content."""
        entry = self._entries.get(path)
        if entry is None:
            return
        entry.busy = False
        changed = entry.digest != digest
        entry.read, entry.digest, entry.refused = dict(stamps), digest, refused
        if entry.modules != tuple(stamps):
            entry.modules, entry.current = tuple(stamps), dict(stamps)
        if changed:
            self.retry_refused(but=path)

    def abandon(self, path: str, modules: Iterable[str] = (), *, now: float) -> None:
        """What was read is not what is there now: wait until the file is still again, and read it then."""
        entry = self._entries.get(path)
        if entry is None:
            return
        entry.busy, entry.forced, entry.since = False, True, now
        entry.modules = tuple(dict.fromkeys((path, *entry.modules, *modules)))

    def retry_refused(self, *, but: str | None = None) -> None:
        """Read the files that were refused again; something they may depend on changed."""
        for path, entry in self._entries.items():
            if entry.refused and path != but:
                entry.forced = True
