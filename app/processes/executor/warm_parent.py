"""The warm parent: imports one version of a pipeline file once, then forks a process for each attempt.

Single-threaded, no loop, no socket but the control packets. Started as
``python -P -m app.processes.executor.warm_parent --control FD --root FOLDER --entry FILE``.

If the import left threads or sockets behind, forking would copy a broken half of them: the parent says so and the
executor starts a fresh interpreter per attempt instead.
"""

from __future__ import annotations

import argparse
import gc
import os
import selectors
import signal
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from app.kernel.children import PARENT_VARIABLE, die_with_parent
from app.kernel.frames import decoder_of
from app.processes.executor import messages
from app.processes.executor.attempt_child import run_attempt

if TYPE_CHECKING:
    from app.sdk.loader import LoadedFile

_PROC = Path("/proc/self")


def main(arguments: list[str] | None = None) -> int:
    """Serve the control socket until the executor closes it."""
    parser = argparse.ArgumentParser(description="Imports a pipeline file and forks its task attempts.")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--entry", required=True)
    options = parser.parse_args(arguments)
    die_with_parent()
    os.environ.pop(PARENT_VARIABLE, None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=options.control)
    os.set_inheritable(options.control, False)
    loaded = _load(control, options.root, options.entry)
    if loaded is None:
        return 1
    # Objects of the import are never collected: frozen, their pages stay shared between the attempts.
    gc.collect()
    gc.freeze()
    _say(control, messages.Ready(unforkable=_why_unforkable(known={options.control})))
    return _Forking(control, loaded).serve()


def _load(control: socket.socket, root: Path, entry: str) -> LoadedFile | None:
    from app.sdk.errors import PipelineError
    from app.sdk.execution import prepare_interpreter
    from app.sdk.loader import load_pipeline

    prepare_interpreter()
    decoder_of(messages.ToAttempt)
    try:
        return load_pipeline(root, entry).require()
    except PipelineError as error:
        _say(control, messages.ImportFailed(error=str(error)[: messages.MAX_PACKET // 2]))
        return None


def _say(control: socket.socket, message: msgspec.Struct) -> None:
    control.send(msgspec.msgpack.encode(message))


def _why_unforkable(*, known: set[int]) -> str | None:
    """Name what the import left behind that does not survive a fork, if anything."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    native = len(list(_PROC.joinpath("task").iterdir())) if _PROC.is_dir() else 1
    if others or native > 1:
        return f"the import left threads running ({', '.join(others) or f'{native - 1} native'})"
    for entry in list(_PROC.joinpath("fd").iterdir()) if _PROC.is_dir() else ():
        descriptor = int(entry.name)
        if descriptor <= 2 or descriptor in known:
            continue
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                return f"the import left a socket open (descriptor {descriptor})"
        except OSError:
            continue  # the listing's own descriptor is already closed
    return None


class _Forking:
    """Forks on request and reports exits, waiting on descriptors only (a pidfd per child)."""

    def __init__(self, control: socket.socket, loaded: LoadedFile) -> None:
        self._control = control
        self._loaded = loaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, None)

    def serve(self) -> int:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if not self._read_request():
                        return 0
                else:
                    self._reap(key.fd, *key.data)

    def _read_request(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, messages.MAX_PACKET, 1)
        if not data:
            return False
        request = msgspec.msgpack.decode(data, type=messages.Fork)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(descriptors[0])
            _say(self._control, messages.ForkFailed(slot=request.slot, error=str(error)))
            return True
        if pid == 0:
            self._become_attempt(descriptors[0], parent=parent)
        os.close(descriptors[0])
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (request.slot, pid))
        _say(self._control, messages.Forked(slot=request.slot, pid=pid))
        return True

    def _become_attempt(self, descriptor: int, *, parent: int) -> None:
        status = 70  # EX_SOFTWARE, should the attempt's own code fail before it can say more
        try:
            die_with_parent(parent=parent)
            os.setsid()
            for key in list(self._selector.get_map().values()):
                if key.fd != self._control.fileno():
                    os.close(key.fd)
            self._selector.close()
            self._control.close()
            status = run_attempt(descriptor, self._loaded)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # The parent's cleanup handlers are not this process's to run.
            os._exit(status)

    def _reap(self, descriptor: int, slot: int, pid: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        _say(self._control, messages.Exited(slot=slot, status=os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    sys.exit(main())
