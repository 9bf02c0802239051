"""Where logs are kept: said once, for those who write them and those who read them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def attempt_log_path(home: Path, *, dag_id: str, run_id: str, task_id: str, map_index: int, attempt: int) -> Path:
    """The log of one attempt. Each part is percent-encoded, so that no id can leave the folder."""
    folder = home / "logs"
    for name, value in (("dag_id", dag_id), ("run_id", run_id), ("task_id", task_id)):
        folder = folder / f"{name}={quote(value, safe='')}"
    if map_index >= 0:
        folder = folder / f"map_index={map_index}"
    return folder / f"attempt={attempt}.log"
