"""A log for each trigger, and for each runner: JSON lines in ``<home>/logs/triggers``."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

#: Size at which a file becomes ``….log.1`` and a new one begins, in bytes.
ROTATE_AT = 10 * 1024 * 1024


class TriggerLogs:
    """Appends lines. A log that cannot be written is no reason to stop a trigger: such lines are lost."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "logs" / "triggers"
        self._made = False

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
            self._append(self.folder / f"{name}.log", _line(event, moment=moment, level=level, logger=logger))

    def write_output(self, name: int | str, text: str) -> None:
        """Append what was written to a file descriptor, a line each."""
        now = datetime.now(UTC)
        lines = [_line(line, moment=now, level="info", logger="output") for line in text.splitlines() if line]
        with suppress(OSError):
            self._append(self.folder / f"{name}.log", b"".join(lines))

    def _append(self, path: Path, data: bytes) -> None:
        if not self._made:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._made = True
        with path.open("ab") as file:
            file.write(data)
            size = file.tell()
        if size > ROTATE_AT:
            path.replace(path.with_suffix(".log.1"))


def _line(event: str, *, moment: datetime, level: str, logger: str) -> bytes:
    form = {"timestamp": moment.isoformat(), "level": level, "logger": logger, "event": event}
    return json.dumps(form, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
