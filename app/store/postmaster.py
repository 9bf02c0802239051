"""What a data folder tells about the server on it: who runs there, on which port, and how to end a left-over one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from app.kernel.errors import EmbeddedDatabaseError

# (signal, seconds to wait): fast shutdown, immediate shutdown, kill.
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
#: The same for a server of ours that ends with us: what a hurried end leaves undone, the next start recovers.
HURRIED_STOP_STEPS = ((signal.SIGINT, 1.2), (signal.SIGQUIT, 0.4), (signal.SIGKILL, 5.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """A server as its pid file tells it (PostgreSQL's ``postmaster.pid``, one value a line)."""

    pid: int
    port: int
    socket_folder: str
    ready: bool


def pid_file(data: Path) -> Path:
    """Where a running server tells about itself."""
    return data / "postmaster.pid"


def read_postmaster(data: Path) -> Postmaster | None:
    """The server that the pid file names, alive or not; None without (or with a half-written) file."""
    try:
        lines = pid_file(data).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 6 or not lines[0].lstrip("-").isdigit() or not lines[3].isdigit():
        return None
    return Postmaster(
        # Negative when a single-user server wrote it.
        pid=abs(int(lines[0])),
        port=int(lines[3]),
        socket_folder=lines[4],
        ready=len(lines) > 7 and lines[7].strip() == "ready",
    )


def runs_on(data: Path, pid: int) -> bool:
    """Whether ``pid`` is a living server on ``data``: not a zombie, and not another program under a reused number."""
    command = _command_line(pid)
    return command is not None and "postgres" in command.split("\0")[0] and str(data) in command.split("\0")


def _command_line(pid: int) -> str | None:
    """Arguments of a living process, each ended by NUL; None if there is none or it is a zombie."""
    process = Path("/proc") / str(pid)
    if Path("/proc/self/cmdline").exists():
        try:
            state = process.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            return None if state in "ZX" else process.joinpath("cmdline").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
    shown = subprocess.run(["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip().replace(" ", "\0") or None


def stop_leftover(data: Path) -> bool:
    """End a server that outlived its Tidegate and remove its stale pid file; true if one had to be ended.

    Only for a caller who knows that no other Tidegate uses ``data``. Blocks for up to 20 s. Raises
    :class:`EmbeddedDatabaseError` if it cannot be ended.
    """
    found = read_postmaster(data)
    ended = found is not None and runs_on(data, found.pid)
    if found is not None and ended:
        _end(data, found.pid)
    # PostgreSQL takes any process (a zombie too) under the number in its pid file for a living server, so a stale one
    # must go. The shared memory of a data folder still keeps a second server off it.
    pid_file(data).unlink(missing_ok=True)
    return ended


def _end(data: Path, pid: int) -> None:
    for number, patience in STOP_STEPS:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not runs_on(data, pid):
                return
            time.sleep(0.01)
    raise EmbeddedDatabaseError(
        f"another PostgreSQL (pid {pid}) runs on {data} and cannot be ended by this user. End it, or use another home."
    )


def clear_sockets(folder: Path) -> None:
    """Remove sockets that killed servers left behind."""
    for path in folder.glob(".s.PGSQL.*"):
        if re.fullmatch(r"\.s\.PGSQL\.\d+(\.lock)?", path.name):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
