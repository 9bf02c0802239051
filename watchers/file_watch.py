"""A thread that watches the files of a pattern and tells which are new or changed and still.

A thread of its own, because looking at files blocks (for long, on a file system over a network) and must hold up
neither an event loop nor the threads that others share. Notifications of the operating system make it quick; a full
scan each 30 seconds, and at every start, makes a lost notification harmless. Where notifications cannot be had, it
scans once a second.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from watchers.file_patterns import FilePattern, FoundFile, look_at

FULL_SCAN_SECONDS = 30.0
_SCAN_SECONDS_WITHOUT_NOTIFICATIONS = 1.0
_ROOT_CHECK_SECONDS = 1.0
#: How long ``watchfiles`` waits for changes at a time, and how long it groups them, in milliseconds.
_TICK, _GROUP, _STEP = 100, 200, 50


@dataclass(slots=True)
class _Candidate:
    file: FoundFile
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOutput:
    """Where a watch tells what it finds. Called from its thread."""

    found: Callable[[list[FoundFile]], None]
    failed: Callable[[Exception], None]
    recovered: Callable[[], None]
    #: The first complete look is over: these files were there.
    ready: Callable[[], None]


class FileWatch(threading.Thread):
    """Watch ``pattern`` until :meth:`stop`; files must be still for ``still_seconds`` before they are told of.

    ``ignore`` decides about each file of the first look whether to keep silent about it as it is then.
    """

    def __init__(
        self,
        pattern: FilePattern,
        *,
        still_seconds: float,
        ignore: Callable[[FoundFile], bool],
        output: WatchOutput,
    ) -> None:
        super().__init__(name=f"file watch {pattern.text}", daemon=True)
        self._pattern = pattern
        self._still_seconds = still_seconds
        self._ignore = ignore
        self._output = output
        self._stopped = threading.Event()
        self._told: dict[str, FoundFile] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._is_first_look = True
        self._has_failed = False
        self._next_scan = 0.0
        self._earliest_scan = 0.0

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._watch(*self._pattern.watch_root())
            except Exception as error:  # noqa: BLE001 — no notifications here: say so and scan instead
                self._fail(error)
                self._scan_until(time.monotonic() + FULL_SCAN_SECONDS)

    def _watch(self, root: str, is_deep: bool) -> None:
        """Follow the notifications of ``root`` until another folder is the one to watch."""
        import watchfiles  # slow to import, and not needed to declare a trigger

        _quiet_notifications()
        identity = _identity(root)
        next_check = time.monotonic() + _ROOT_CHECK_SECONDS
        self._next_scan = 0.0
        for changes in watchfiles.watch(
            root,
            watch_filter=None,
            debounce=_GROUP,
            step=_STEP,
            rust_timeout=_TICK,
            yield_on_timeout=True,
            stop_event=self._stopped,
            raise_interrupt=False,
            recursive=is_deep,
            ignore_permission_denied=True,
        ):
            self._look(path for _, path in changes)
            now = time.monotonic()
            if changes or now >= next_check:
                next_check = now + _ROOT_CHECK_SECONDS
                if self._pattern.watch_root() != (root, is_deep) or _identity(root) != identity:
                    return

    def _scan_until(self, end: float) -> None:
        while not self._stopped.wait(min(self._still_seconds or _TICK / 1000, _SCAN_SECONDS_WITHOUT_NOTIFICATIONS)):
            self._look(())
            self._next_scan = min(self._next_scan, time.monotonic() + _SCAN_SECONDS_WITHOUT_NOTIFICATIONS)
            if time.monotonic() >= end:
                return

    def _look(self, changed: Iterable[str]) -> None:
        for path in changed:
            self._consider_change(path)
        now = time.monotonic()
        if now >= self._next_scan:
            self._scan_all()
            end = time.monotonic()
            self._earliest_scan = end + 2 * (end - now)  # a slow scan must not be all that this thread does
            self._next_scan = max(end + FULL_SCAN_SECONDS, self._earliest_scan)
        self._tell_still_ones()

    def _consider_change(self, path: str) -> None:
        if not self._pattern.matches(path) or "�" in path:  # perhaps a folder with files, or a name it cannot write
            if os.path.isdir(path) or "�" in path:  # noqa: PTH112
                self._next_scan = self._earliest_scan
            return
        try:
            found = look_at(path)
        except OSError as error:
            self._fail(error)
            return
        if found is None:
            self._forget(path)
            if os.path.isdir(path):  # noqa: PTH112
                self._next_scan = self._earliest_scan
        else:
            self._consider(found)

    def _scan_all(self) -> None:
        scan = self._pattern.scan()
        if self._is_first_look:
            self._told = {path: file for path, file in scan.files.items() if self._ignore(file)}
            self._is_first_look = False
            self._output.ready()
        for path in (self._told.keys() | self._candidates.keys()) - scan.files.keys():
            if scan.failure is None or look_quietly(path) is None:
                self._forget(path)
        for found in scan.files.values():
            self._consider(found)
        if scan.failure is not None:
            self._fail(scan.failure)
        elif self._has_failed:
            self._has_failed = False
            self._output.recovered()

    def _consider(self, found: FoundFile) -> None:
        candidate = self._candidates.get(found.path)
        if self._told.get(found.path) == found:
            self._candidates.pop(found.path, None)
        elif candidate is None or candidate.file != found:
            self._candidates[found.path] = _Candidate(found, time.monotonic())

    def _tell_still_ones(self) -> None:
        due = time.monotonic() - self._still_seconds
        still: list[FoundFile] = []
        for path, candidate in list(self._candidates.items()):
            if candidate.since > due:
                continue
            found = look_quietly(path)
            if found is None:
                self._forget(path)
            elif found == candidate.file:
                del self._candidates[path]
                self._told[path] = found
                still.append(found)
            else:
                self._consider(found)
        if still:
            self._output.found(sorted(still))

    def _forget(self, path: str) -> None:
        self._told.pop(path, None)
        self._candidates.pop(path, None)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._output.failed(error)


def look_quietly(path: str) -> FoundFile | None:
    """As ``look_at``, but a file that may not be looked at is none."""
    try:
        return look_at(path)
    except OSError:
        return None


def _quiet_notifications() -> None:
    """Keep ``watchfiles`` from a line for each change: a log file in a watched folder would change for ever."""
    logger = logging.getLogger("watchfiles")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
