"""What every child process is started with: a command, an environment without our secrets, and the parent's fate.

A parent-death signal belongs to the *thread* that started the child: start children from the main thread (an event
loop running there), never from a worker thread that may end first.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from app.kernel import launch

#: Names the parent's pid to a child, which ends if that parent is gone before it could ask to die with it.
PARENT_VARIABLE = "TIDEGATE_PARENT_PID"
#: Besides our secrets: variables by which a PostgreSQL client finds a server and its password.
_HIDDEN_PREFIXES = ("PG",)


def code_root() -> Path:
    """The folder that holds the packages ``app``, ``watchers`` and ``providers`` (a checkout or site-packages)."""
    return Path(__file__).resolve().parent.parent.parent


def scrubbed_environment(
    extra: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a child that runs user code.

    That of this process (``PATH``, ``HOME``, ``AWS_*``, ``TIDEGATE_CONN_*``, ``TIDEGATE_VAR_*`` …) without our secrets
    and the ``PG*`` variables; our packages are importable first. ``extra`` is added last.
    """
    # Reading settings takes most of a process's start-up; children only import this module to die with their parent.
    from app.kernel.settings import secret_variables

    found = os.environ if source is None else source
    hidden = secret_variables()
    environment = {
        name: value
        for name, value in found.items()
        if name.upper() not in hidden and not name.startswith(_HIDDEN_PREFIXES)
    }
    paths = [str(code_root()), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    environment[PARENT_VARIABLE] = str(os.getpid())
    environment.update(extra or {})
    return environment


def python_command(module: str, *arguments: str) -> list[str]:
    """Run ``module`` with this interpreter; ``-P`` keeps the working folder off the import path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def foreign_command(
    program: Path,
    *arguments: str,
    user: tuple[int, int] | None = None,
    on_parent_death: signal.Signals = signal.SIGTERM,
) -> list[str]:
    """Run a program that is not Python so that it dies with this process, as ``user`` (uid, gid) if given."""
    uid, gid = (str(part) for part in user) if user else ("-", "-")
    return [
        sys.executable, "-I", "-S", launch.__file__,
        uid, gid, str(int(on_parent_death)), str(os.getpid()), str(program), *arguments,
    ]  # fmt: skip


def die_with_parent(death_signal: signal.Signals = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Called first by a child: ask the kernel for ``death_signal`` once the parent has gone.

    ``parent`` is its pid (a forked child knows it), else :data:`PARENT_VARIABLE` says. Elsewhere than on Linux a child
    notices the end of its socket to the parent instead.
    """
    if sys.platform != "linux":
        return
    _library().prctl(launch.PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    expected = parent if parent is not None else int(os.environ.get(PARENT_VARIABLE, "0"))
    if expected and os.getppid() != expected:
        os._exit(1)


@functools.cache
def _library() -> ctypes.CDLL:
    """The C library; a forked child finds it loaded."""
    return ctypes.CDLL(None, use_errno=True)
