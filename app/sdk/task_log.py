"""The log of one attempt: JSON lines, with everything the task prints, logs or lets a child process write.

A line is ``{"timestamp", "level", "logger", "event"}``. What Python code prints becomes such lines; what reaches file
descriptors 1 and 2 by another way lands between them as it is. Each line is one write, so that lines of several
processes do not mix. Passwords in URIs, and the secrets of connections and variables that this process looked up, are
masked, but for bytes written straight to a descriptor.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from watchers.known_secrets import mask_known

#: Longest event of a line, in characters; the middle of a longer one is left out.
MAX_EVENT = 64 * 1024


class JsonLines(logging.Handler):
    """Writes log records as JSON lines to a file descriptor.

    With ``limit`` (bytes) only until the file is that large; then one line says so, and what follows is counted.
    """

    def __init__(self, descriptor: int, *, limit: int = 0) -> None:
        super().__init__()
        self.descriptor = descriptor
        self._limit = limit
        self._is_full = False
        self._dropped = self._dropped_bytes = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong format of the author's must not end the task
            event = f"{record.msg!r} with arguments that do not fit it"
        if record.exc_info and record.exc_info[0] is not None:
            event = f"{event}\n{''.join(traceback.format_exception(*record.exc_info)).rstrip()}"
        if record.stack_info:
            event = f"{event}\n{record.stack_info}"
        self.write(event, level=record.levelname.lower(), logger=record.name, created=record.created)

    def write(self, event: str, *, level: str, logger: str, created: float | None = None) -> None:
        """Write one line. A full disk loses it silently: there is nobody to tell."""
        moment = datetime.now(UTC) if created is None else datetime.fromtimestamp(created, UTC)
        event = mask_known(event)
        if len(event) > MAX_EVENT:
            left_out = len(event) - MAX_EVENT
            event = f"{event[: MAX_EVENT // 2]}\n… {left_out} characters left out …\n{event[-MAX_EVENT // 2 :]}"
        data = _line(event, moment=moment, level=level, logger=logger)
        with contextlib.suppress(OSError):
            if not self._limit or self._has_room(len(data)):
                _write(self.descriptor, data)

    def _has_room(self, size: int) -> bool:
        if not self._is_full:
            if os.fstat(self.descriptor).st_size + size <= self._limit:
                return True
            self._is_full = True
            self._tell(
                f"this log has reached its limit of {self._limit:,} bytes: what follows is dropped, the task goes on"
            )
        self._dropped += 1
        self._dropped_bytes += size
        return False

    def tell_dropped(self) -> None:
        """Say at the end how much there was no room for, if any."""
        if self._dropped:
            self._tell(f"{self._dropped:,} lines ({self._dropped_bytes:,} bytes) were dropped")

    def _tell(self, event: str) -> None:
        with contextlib.suppress(OSError):
            _write(self.descriptor, _line(event, moment=datetime.now(UTC), level="warning", logger="tidegate.log"))


def _line(event: str, *, moment: datetime, level: str, logger: str) -> bytes:
    line = {"timestamp": moment.isoformat(), "level": level, "logger": logger, "event": event}
    # ASCII only: lone surrogates of undecodable text then pass as well.
    return (json.dumps(line) + "\n").encode("ascii")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class _Printed(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr``: each finished line becomes a line of the log."""

    def __init__(self, lines: JsonLines, *, level: str, logger: str) -> None:
        self._lines = lines
        self._level = level
        self._logger = logger
        self._rest = ""
        self._lock = threading.RLock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> io.FileIO:
        """For code that writes bytes: they land in the log as they are."""
        self.flush()
        return io.FileIO(self._lines.descriptor, "wb", closefd=False)

    def fileno(self) -> int:
        return self._lines.descriptor

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            *finished, self._rest = (self._rest + text).split("\n")
            for line in finished:
                self._lines.write(line, level=self._level, logger=self._logger)
            if len(self._rest) > MAX_EVENT:
                self.flush()
        return len(text)

    def flush(self) -> None:
        with self._lock:
            if self._rest:
                rest, self._rest = self._rest, ""
                self._lines.write(rest, level=self._level, logger=self._logger)


@contextlib.contextmanager
def task_log(path: str | Path, *, capture_descriptors: bool = True, limit: int = 0) -> Iterator[None]:
    """Log everything in this block to ``path``, which is made with its folders and appended to.

    Root logger, ``print`` and, with ``capture_descriptors``, file descriptors 1 and 2. An empty path changes nothing.
    ``limit`` is the largest size in bytes (0: none); what is written straight to a descriptor is not held back by it.
    """
    if not str(path):
        yield
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        if capture_descriptors:
            _redirect(descriptor, undo)
        lines = JsonLines(descriptor, limit=limit)
        undo.callback(lines.tell_dropped)
        with capture_into(lines):
            yield


@contextlib.contextmanager
def capture_into(lines: JsonLines) -> Iterator[None]:
    """Send the root logger's records and what is printed to ``lines``."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stdout, stderr = sys.stdout, sys.stderr
    printed = _Printed(lines, level="info", logger="task.stdout")
    complained = _Printed(lines, level="error", logger="task.stderr")
    root.handlers[:] = [lines]
    root.setLevel(logging.INFO)
    sys.stdout, sys.stderr = printed, complained
    logging.captureWarnings(True)
    try:
        yield
    finally:
        printed.flush()
        complained.flush()
        logging.captureWarnings(False)
        sys.stdout, sys.stderr = stdout, stderr
        root.handlers[:] = handlers
        root.setLevel(level)


def _redirect(descriptor: int, undo: contextlib.ExitStack) -> None:
    """Let file descriptors 1 and 2 be the log, until ``undo``."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
        kept = os.dup(number)
        os.set_inheritable(kept, False)
        os.dup2(descriptor, number)
        undo.callback(os.close, kept)
        undo.callback(os.dup2, kept, number)
