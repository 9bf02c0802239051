"""Reading the log of an attempt."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.kernel.attempt_logs import attempt_log_path
from app.kernel.errors import NotFound
from app.kernel.settings import Settings

#: Most bytes of a log that are sent; of a longer one, the end.
LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line: ``event`` and, if it was written through our log, ``timestamp``, ``level``, ``logger``."""

    values: dict[str, Any]

    def as_json(self) -> str:
        """The line as a JSON object."""
        return json.dumps(self.values, default=str)

    def as_text(self) -> str:
        """The line for reading."""
        head = [str(self.values[name]) for name in ("timestamp", "level") if self.values.get(name)]
        return " ".join([*head, str(self.values.get("event", ""))])


async def read_lines(
    settings: Settings, dag_id: str, run_id: str, *, task_id: str, map_index: int, attempt: int
) -> list[Line]:
    """The lines of a log; raises :class:`NotFound` if the attempt wrote none on this machine."""
    path = attempt_log_path(
        settings.home, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index, attempt=attempt
    )
    try:
        data, cut = await asyncio.to_thread(_read_end, path)
    except FileNotFoundError:
        raise NotFound(what=f"log of attempt {attempt} of task {task_id!r} on this machine") from None
    lines = [_parsed(line) for line in data.decode("utf-8", "replace").splitlines()]
    if cut:
        lines[0] = Line({"event": f"({cut} earlier bytes are not shown)"})
    return lines


def _read_end(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        cut = max(0, size - LIMIT)
        file.seek(cut)
        return file.read(LIMIT), cut


def _parsed(line: str) -> Line:
    try:
        values = json.loads(line)
    except ValueError:
        return Line({"event": line})
    return Line(values) if isinstance(values, dict) and "event" in values else Line({"event": line})
