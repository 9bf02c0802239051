"""Where logs are kept: said once, for those who write them and those who read them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import quote

from app.kernel.clock import utc_now


def attempt_log_path(home: Path, *, dag_id: str, run_id: str, task_id: str, map_index: int, attempt: int) -> Path:
    """The log of one attempt. Each part is percent-encoded, so that no id can leave the folder."""
    folder = home / "logs"
    for name, value in (("dag_id", dag_id), ("run_id", run_id), ("task_id", task_id)):
        folder = folder / f"{name}={quote(value, safe='')}"
    if map_index >= 0:
        folder = folder / f"map_index={map_index}"
    return folder / f"attempt={attempt}.log"


def append_line(path: str | Path, event: str, *, level: str, logger: str) -> None:
    """Add a line of the form that attempts write to a log, which is made if it is missing. Raises :class:`OSError`.

    It begins on a line of its own also where the attempt's process was cut off within one. Blocks: the file may be on
    a network.
    """
    line = {"timestamp": utc_now().isoformat(), "level": level, "logger": logger, "event": event}
    data = (json.dumps(line) + "\n").encode("ascii")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
