"""An event for each file that appears or changes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import math
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from watchers.errors import SourceUnavailable, WatcherDeclarationError
from watchers.file_patterns import FoundFile, read_pattern
from watchers.file_watch import FileWatch, WatchOutput
from watchers.triggers import BaseEventTrigger, PositionUpdate, TriggerEvent, Yielded

_STILL_SECONDS = 0.2
_LONGEST_STILL_SECONDS = 3600.0
#: Events of one commit.
_BATCH = 100
_LANE = "started_ns"
_STOP_SECONDS = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FileEventTrigger(BaseEventTrigger):
    """Fires for each file at ``path`` that appears or changes; the file is left where it is.

    ``path`` is absolute: a file, a folder (each file in it; with ``recursive`` also in the folders below), or a glob
    (``*``, ``?``, ``[…]``; ``**`` for any number of folders, not through symbolic links). Names that begin with a dot
    match only a part that does. Folders, pipes and devices are no files. The path and the folders above it need not
    exist yet.

    A file is reported once size and modification time have been still for ``debounce`` seconds, so that no half-written
    file is. One that is written more slowly is reported again for each pause; write it elsewhere on the same file
    system and rename it to be safe.

    With ``initial`` (the default) files that are there at the first start are reported, else only what appears or
    changes afterwards, also while no triggerer runs.

    Payload: ``{"path", "name", "size", "mtime"}`` (bytes; ISO 8601, UTC). A name that is not UTF-8 is shown with
    ``\\xNN`` for its odd bytes, and ``path_bytes`` holds it as it is. Identity: path, modification time and size; the
    same file is reported once however often the trigger starts. Deletion is no event.

    ``queue`` says which triggerers may run it (``triggerer --queues``): those that have the folder.

    Raises :class:`WatcherDeclarationError` for a relative path or a ``debounce`` that is not 0 to 3600.
    """

    public_kwargs = frozenset({"path"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        recursive: bool = False,
        initial: bool = True,
        debounce: float = _STILL_SECONDS,
        queue: str | None = None,
    ) -> None:
        self._pattern = read_pattern(path, recursive=recursive)
        if not isinstance(debounce, (int, float)) or not 0 <= debounce <= _LONGEST_STILL_SECONDS:
            raise WatcherDeclarationError(
                f"debounce must be 0 to {_LONGEST_STILL_SECONDS:.0f} seconds, not {debounce!r}"
            )
        self.path = self._pattern.text
        self.recursive = bool(recursive)
        self.initial = bool(initial)
        self.debounce = float(debounce)
        self.trigger_queue = queue

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {
            "path": self.path,
            "recursive": self.recursive,
            "initial": self.initial,
            "debounce": self.debounce,
        }
        return "watchers.files.FileEventTrigger", arguments

    def default_source(self) -> str:
        return f"file:{self.path}"

    async def run(self) -> AsyncIterator[Yielded]:
        started = self.positions.get(self.default_source(), {}).get(_LANE)
        now = time.time_ns()
        basket = _Basket(self)
        watch = FileWatch(
            self._pattern,
            still_seconds=self.debounce,
            ignore=lambda file: self._is_old(file, started),
            output=basket.output(),
        )
        watch.start()
        try:
            await basket.ready.wait()
            if started is None and not self.initial:
                yield PositionUpdate(source=self.default_source(), lanes={_LANE: now})
            while True:
                found = await basket.take(_BATCH)
                yield [_event(file) for file in found]
        finally:
            watch.stop()
            await asyncio.to_thread(watch.join, _STOP_SECONDS)

    def _is_old(self, file: FoundFile, started: Any) -> bool:
        """Whether a file of the first look was there before this trigger's first start."""
        if self.initial:
            return False
        return not isinstance(started, int) or max(file.changed_ns, file.modified_ns) < started


class _Basket:
    """Hands files from the watching thread to the event loop."""

    def __init__(self, trigger: FileEventTrigger) -> None:
        self.ready = asyncio.Event()
        self._trigger = trigger
        self._loop = asyncio.get_running_loop()
        self._files: dict[str, FoundFile] = {}
        self._filled = asyncio.Event()

    def output(self) -> WatchOutput:
        return WatchOutput(
            found=lambda files: self._call(self._put, files),
            failed=lambda error: self._call(self._fail, error),
            recovered=lambda: self._call(self._trigger.status.recovered),
            ready=lambda: self._call(self.ready.set),
        )

    async def take(self, most: int) -> list[FoundFile]:
        """The files put in first, at least one. A file that changed meanwhile is given as it was last."""
        await self._filled.wait()
        taken = [self._files.pop(path) for path in list(itertools.islice(self._files, most))]
        if not self._files:
            self._filled.clear()
        return taken

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed; the thread is about to be told
            return

    def _put(self, files: list[FoundFile]) -> None:
        self._files.update({file.path: file for file in files})
        self._filled.set()

    def _fail(self, error: Exception) -> None:
        unavailable = SourceUnavailable(f"{self._trigger.path}: {type(error).__name__}: {error}")
        unavailable.__cause__ = error
        self._trigger.status.failed(unavailable)


def _event(file: FoundFile) -> TriggerEvent:
    shown, exact = _readable(file.path)
    payload: dict[str, Any] = {
        "path": shown,
        "name": os.path.basename(shown),  # noqa: PTH119
        "size": file.size,
        "mtime": _instant(file.modified_ns),
    }
    if exact is not None:
        payload["path_bytes"] = exact
    named = shown if exact is None else f"base64:{base64.b64encode(exact).decode('ascii')}"
    return TriggerEvent(payload, key=f"{named}:{file.modified_ns}:{file.size}")


def _readable(path: str) -> tuple[str, bytes | None]:
    """``path`` as text, and its bytes if it is none."""
    try:
        path.encode()
    except UnicodeEncodeError:
        exact = os.fsencode(path)
        return exact.decode("utf-8", "backslashreplace"), exact
    return path, None


def _instant(nanoseconds: int) -> str | None:
    """ISO text, or ``None`` for a time beyond the calendar (a file system may hold any number)."""
    try:
        return (_EPOCH + timedelta(microseconds=math.floor(nanoseconds / 1000))).isoformat()
    except OverflowError:
        return None
