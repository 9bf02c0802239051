"""Reading the log of an attempt, whatever was written into it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from app.kernel.attempt_logs import attempt_log_path
from app.kernel.errors import NotFound
from app.kernel.settings import Settings

#: Most bytes of a log that are sent; of a longer one, the end.
LIMIT = 4 * 1024 * 1024
_HEAD = ("timestamp", "level")


class LogForm(StrEnum):
    """How a log is sent."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    TEXT = "text/plain"


def wanted_form(accept: str) -> LogForm:
    """By the ``Accept`` header; JSON unless the others are asked for."""
    return next((form for form in (LogForm.LINES, LogForm.TEXT) if form in accept), LogForm.JSON)


async def read_log(
    settings: Settings, form: LogForm, *, dag_id: str, run_id: str, task_id: str, map_index: int, attempt: int
) -> bytes:
    """The log in a form; raises :class:`NotFound` if the attempt wrote none on this machine.

    Each line has an ``event`` and, if it was written through our log, ``timestamp``, ``level`` and ``logger``.
    """
    path = attempt_log_path(
        settings.home, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index, attempt=attempt
    )
    try:
        # A long log takes long to read over: not on the loop that serves others.
        return await asyncio.to_thread(_rendered, path, form)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(what=f"log of attempt {attempt} of task {task_id!r} on this machine") from None
    except OSError as error:
        # ENAMETOOLONG, for one: no attempt wrote that file.
        raise NotFound(what=f"readable log of attempt {attempt} of task {task_id!r}: {error.strerror}") from None


def _rendered(path: Path, form: LogForm) -> bytes:
    data, cut = _read_end(path)
    lines = list(_lines(data, cut))
    if form is LogForm.TEXT:
        return "".join(_as_text(line) + "\n" for line in lines).encode("utf-8", "replace")
    encoded = [json.dumps(line) for line in lines]
    if form is LogForm.LINES:
        return "".join(line + "\n" for line in encoded).encode()
    return f'{{"content":[{",".join(encoded)}],"continuation_token":null}}'.encode()


def _read_end(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        cut = max(0, size - LIMIT)
        file.seek(cut)
        return file.read(LIMIT), cut


def _lines(data: bytes, cut: int) -> Iterator[dict[str, Any]]:
    if cut:
        partial, _, data = data.partition(b"\n")
        yield {"event": f"({cut + len(partial)} earlier bytes are not shown)"}
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for line in lines:
        yield _parsed(line.rstrip(b"\r").decode("utf-8", "replace"))


def _parsed(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {"event": line}
    try:
        values = json.loads(line, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return {"event": line}
    if not isinstance(values, dict) or "event" not in values:
        return {"event": line}
    texts = {name: _text(values[name]) for name in ("event", *_HEAD) if name in values}
    return {**values, **texts}


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _as_text(line: Mapping[str, Any]) -> str:
    return " ".join([*(line[name] for name in _HEAD if line.get(name)), line["event"]])
