"""The pipelines folder as it is on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.domain.specs import LocatedError
from app.processes.dag_processor.ignoring import IGNORE_FILE, IgnoreRules, is_hidden

#: Larger ignore files are no ignore files.
_LARGEST_IGNORE_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes whenever a file is written, replaced or renamed over. Times are in nanoseconds."""

    modified: int
    changed: int
    size: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """The stamp of a file, None if it cannot be had."""
        try:
            return cls.made_from(path.stat())
        except OSError:
            return None

    @classmethod
    def made_from(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


@dataclass(slots=True)
class Scan:
    """Pipeline files by relative path, and what about the folder cannot be read, by the name it is shown under.

    ``closed`` are folders that cannot be read (ending in ``/``): nothing is known about what lies below.
    """

    files: dict[str, Stamp] = field(default_factory=dict)
    faults: dict[str, LocatedError] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)

    def holds(self, path: str) -> bool:
        """Whether the file is, or may be, there."""
        return path in self.files or path in self.faults or path.startswith(tuple(self.closed))

    def fault(self, path: str, reason: str, *, line: int | None = None) -> None:
        shown = shown_path(path)
        self.faults[shown] = LocatedError(file=shown, message=reason, line=line)


def scan_folder(root: Path) -> Scan:
    """All pipeline files below ``root``, which must exist (OSError otherwise)."""
    scan = Scan()
    seen = {_identity(root.stat())}
    pending = [("", IgnoreRules())]
    while pending:
        folder, rules = pending.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            if not folder:
                raise
            scan.fault(folder.rstrip("/"), f"the folder cannot be read: {error.strerror}")
            scan.closed.append(folder)
            continue
        if any(entry.name == IGNORE_FILE for entry in entries):
            rules = _with_ignore_file(root, folder, rules=rules, scan=scan)
        for entry in entries:
            below = _look_at(entry, folder, rules=rules, scan=scan, seen=seen)
            if below is not None:
                pending.append((below, rules))
    return scan


def read_sources(root: Path, paths: Iterable[str]) -> tuple[dict[str, bytes], dict[str, Stamp | None]]:
    """Contents and stamps of the files.

    A file that changes while it is read or is gone has no stamp; one that may not be read has no content.
    """
    sources: dict[str, bytes] = {}
    stamps: dict[str, Stamp | None] = {}
    for path in paths:
        before = Stamp.of(root / path)
        stamps[path] = None
        try:
            sources[path] = (root / path).read_bytes()
        except FileNotFoundError:
            continue
        except OSError:
            stamps[path] = before
            continue
        if Stamp.of(root / path) == before:
            stamps[path] = before
    return sources, stamps


def stamps_of(root: Path, paths: Iterable[str], known: Mapping[str, Stamp]) -> dict[str, Stamp | None]:
    """Stamps of the files, looked up in ``known`` where they are."""
    return {path: known[path] if path in known else Stamp.of(root / path) for path in paths}


def shown_path(path: str) -> str:
    """A path as text that can be stored, whatever its bytes are."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _with_ignore_file(root: Path, folder: str, *, rules: IgnoreRules, scan: Scan) -> IgnoreRules:
    path = root / folder / IGNORE_FILE
    shown = f"{folder}{IGNORE_FILE}"
    try:
        if path.stat().st_size > _LARGEST_IGNORE_FILE:
            scan.fault(shown, f"larger than {_LARGEST_IGNORE_FILE} bytes; its patterns are not used")
            return rules
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        scan.fault(shown, f"cannot be read, its patterns are not used: {error}")
        return rules
    extended, faults = rules.within(folder, lines)
    for line, reason in faults[:1]:
        scan.fault(shown, f"line {line}: {reason}; the pattern is not used", line=line)
    return extended


def _look_at(
    entry: os.DirEntry[str], folder: str, *, rules: IgnoreRules, scan: Scan, seen: set[tuple[int, int]]
) -> str | None:
    """Note a pipeline file; return the path of a folder to enter, ending in ``/``."""
    path = f"{folder}{entry.name}"
    if is_hidden(entry.name):
        return None
    try:
        status = entry.stat()
    except OSError as error:
        if entry.name.endswith(".py") and not rules.ignores(path):
            scan.fault(path, f"the file cannot be read: {error.strerror}")
        return None
    if stat.S_ISDIR(status.st_mode):
        identity = _identity(status)
        if identity in seen or rules.ignores(f"{path}/"):
            return None
        # A link to a folder that is already being looked at would never end.
        seen.add(identity)
        return f"{path}/"
    if entry.name.endswith(".py") and stat.S_ISREG(status.st_mode) and not rules.ignores(path):
        if path == shown_path(path):
            scan.files[path] = Stamp.made_from(status)
        else:
            scan.fault(path, "the name of the file is not valid UTF-8, so it cannot be a pipeline file; rename it")
    return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
