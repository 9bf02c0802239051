"""A log for each trigger, and for each runner: JSON lines in ``<home>/logs/triggers``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

#: Size at which a file becomes ``….log.1`` and a new one begins, in bytes.
ROTATE_AT = 10 * 1024 * 1024


class TriggerLogs:
    """Appends lines. A log that cannot be written is no reason to stop a trigger: such lines are lost.

    The log of a trigger begins with its first line of interest, so that tens of thousands of idle ones have none. It is
    preceded by what :attr:`heading` says of the trigger: when (Unix time) what happened to it before.
    """

    def __init__(self, home: Path) -> None:
        self.folder = home / "logs" / "triggers"
        self.heading: Callable[[int], tuple[float, str] | None] = lambda _: None
        self._made = False
        self._begun: set[int | str] = set()

    def has_begun(self, name: int | str) -> bool:
        """Whether there is a line of this trigger since it was last forgotten."""
        return name in self._begun

    def forget(self, name: int | str) -> None:
        """The next line is preceded by a heading."""
        self._begun.discard(name)

    def write(
        self,
        name: int | str,
        event: str,
        *,
        level: str = "info",
        logger: str = "tidegate.triggerer",
        timestamp: float | None = None,
    ) -> None:
        """Append a line to the log of a trigger (by id) or of a runner (by name)."""
        moment = datetime.fromtimestamp(time.time() if timestamp is None else timestamp, UTC)
        with suppress(OSError):
            self._append(name, _line(event, moment=moment, level=level, logger=logger))

    def write_output(self, name: int | str, text: str) -> None:
        """Append what was written to a file descriptor, a line each."""
        now = datetime.now(UTC)
        lines = [_line(line, moment=now, level="info", logger="output") for line in text.splitlines() if line]
        with suppress(OSError):
            self._append(name, b"".join(lines))

    def _append(self, name: int | str, data: bytes) -> None:
        path = self.folder / f"{name}.log"
        if name not in self._begun:
            self._begun.add(name)
            data = self._headed(name) + data
        if not self._made:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._made = True
        with path.open("ab") as file:
            file.write(data)
            size = file.tell()
        if size > ROTATE_AT:
            path.replace(path.with_suffix(".log.1"))

    def _headed(self, name: int | str) -> bytes:
        found = self.heading(name) if isinstance(name, int) else None
        if found is None:
            return b""
        moment = datetime.fromtimestamp(found[0], UTC)
        return _line(found[1], moment=moment, level="info", logger="tidegate.triggerer")


def _line(event: str, *, moment: datetime, level: str, logger: str) -> bytes:
    form = {"timestamp": moment.isoformat(), "level": level, "logger": logger, "event": event}
    return json.dumps(form, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
