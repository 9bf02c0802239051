"""Which files a path or glob means, found without following a symbolic link into a loop."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath

from watchers.errors import WatcherDeclarationError

_MAGIC = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"
#: What may happen to a path at any moment and only means that there is no such file now.
_GONE = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True, order=True)
class FoundFile:
    """A regular file as it was seen: modification time in nanoseconds since the epoch, size in bytes."""

    modified_ns: int
    path: str
    size: int
    changed_ns: int = field(compare=False)


@dataclass(slots=True)
class Scan:
    """The files found, and the first failure to look into a folder."""

    files: dict[str, FoundFile] = field(default_factory=dict)
    failure: OSError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePattern:
    """A path or glob, taken apart.

    ``base`` is the folder above the first part with a wild card; ``branches`` are the ways on from there, a part a
    step. A path without wild cards has two: the file itself, or the files in the folder of that name.
    """

    text: str
    base: str
    branches: tuple[tuple[str, ...], ...]

    @property
    def _is_literal(self) -> bool:
        return len(self.branches) > 1

    def watch_root(self) -> tuple[str, bool]:
        """The folder to be notified about as things are now, and whether about the folders below it too."""
        if self._is_literal and os.path.isdir(self.text):  # noqa: PTH112
            return self.text, _ANY_DEPTH in self.branches[-1]
        folder = self.base
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):  # noqa: PTH112, PTH120
            folder = os.path.dirname(folder)  # noqa: PTH120
        is_deep = not self._is_literal and (len(self.branches[0]) > 1 or _ANY_DEPTH in self.branches[0])
        return folder, is_deep and folder == self.base

    def matches(self, path: str) -> bool:
        """Whether a file at ``path`` is meant."""
        if not is_below(path, self.base):
            return False
        names = PurePath(path).parts[len(PurePath(self.base).parts) :]
        return any(_matches(names, parts) for parts in self.branches)

    def scan(self) -> Scan:
        """Look at all files that are meant. Slow on a large folder: not for an event loop."""
        scan = Scan()
        waiting: list[tuple[str, tuple[str, ...]]] = [(self.base, parts) for parts in self.branches]
        visited: set[tuple[str, tuple[str, ...]]] = set()
        while waiting:
            step = waiting.pop()
            if step not in visited:
                visited.add(step)
                waiting.extend(_step(*step, scan))
        return scan


def read_pattern(path: str | os.PathLike[str], *, recursive: bool) -> FilePattern:
    """Take ``path`` apart. Raises :class:`WatcherDeclarationError` if it is not absolute or no path at all."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise WatcherDeclarationError(f"path must be a path or glob, not {path!r}")
    if not PurePath(text).is_absolute():
        raise WatcherDeclarationError(
            f"path {text!r} is relative, so it would name another file in another process; write it in full "
            "(Path(__file__).parent / …, for example)"
        )
    text = os.path.normpath(text)
    parts = PurePath(text).parts
    first = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), None)
    if first is not None:
        return FilePattern(text=text, base=os.path.join(*parts[:first]), branches=(parts[first:],))  # noqa: PTH118
    if len(parts) == 1:
        raise WatcherDeclarationError(f"path {text!r} names no file")
    below = (parts[-1], _ANY_DEPTH if recursive else "*")
    return FilePattern(text=text, base=os.path.dirname(text), branches=((parts[-1],), below))  # noqa: PTH120


def look_at(path: str) -> FoundFile | None:
    """The regular file at ``path`` (through links), or ``None``. Raises ``OSError`` if it may not be looked at."""
    try:
        status = os.stat(path)  # noqa: PTH116 — Path() costs more than the call
    except (*_GONE, ValueError):
        return None
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        return None  # a link that leads to itself, a name too long
    if not stat.S_ISREG(status.st_mode):
        return None
    return FoundFile(path=path, modified_ns=status.st_mtime_ns, size=status.st_size, changed_ns=status.st_ctime_ns)


def is_below(path: str, folder: str) -> bool:
    """Whether ``path`` is inside ``folder``, by their texts."""
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _step(folder: str, parts: tuple[str, ...], scan: Scan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Note the files of ``folder`` that end the way ``parts``; yield the folders where it goes on."""
    head, rest = parts[0], parts[1:]
    if head == _ANY_DEPTH:
        yield from _any_depth(folder, parts, scan)
    elif not _MAGIC.search(head):
        path = os.path.join(folder, head)  # noqa: PTH118
        if rest:
            yield path, rest
        else:
            _note(path, scan)
    else:
        for entry in _entries(folder, scan):
            if not _name_matches(entry.name, head):
                continue
            if not rest:
                _note(entry.path, scan)
            elif _is_folder(entry, through_links=True):
                yield entry.path, rest


def _any_depth(folder: str, parts: tuple[str, ...], scan: Scan) -> Iterator[tuple[str, tuple[str, ...]]]:
    if len(parts) > 1:
        yield folder, parts[1:]
    for entry in _entries(folder, scan):
        if entry.name.startswith("."):
            continue
        if _is_folder(entry, through_links=False):
            yield entry.path, parts
        elif len(parts) == 1:
            _note(entry.path, scan)


def _entries(folder: str, scan: Scan) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except _GONE:
        return ()
    except OSError as error:
        scan.failure = scan.failure or error
        return ()


def _is_folder(entry: os.DirEntry[str], *, through_links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=through_links)
    except OSError:
        return False


def _note(path: str, scan: Scan) -> None:
    try:
        found = look_at(path)
    except OSError as error:
        scan.failure = scan.failure or error
    else:
        if found is not None:
            scan.files[path] = found


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts:
        return not names
    if parts[0] == _ANY_DEPTH:
        if not names:
            return len(parts) == 1
        if _matches(names, parts[1:]):
            return True
        return not names[0].startswith(".") and _matches(names[1:], parts)
    return bool(names) and _name_matches(names[0], parts[0]) and _matches(names[1:], parts[1:])


def _name_matches(name: str, part: str) -> bool:
    if not _MAGIC.search(part):
        return name == part
    if name.startswith(".") and not part.startswith("."):
        return False
    return _expression(part).match(name) is not None


@lru_cache(maxsize=256)
def _expression(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))
