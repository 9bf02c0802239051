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
from dataclasses import dataclass
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
    unforkable = _why_unforkable(known={options.control})
    _say(control, messages.Ready(unforkable=unforkable))
    return _Forking(control, loaded).serve(ahead=unforkable is None)


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


@dataclass(slots=True)
class _Child:
    """A forked process, and the attempt it has; None while it waits for one."""

    pid: int
    slot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spare:
    """The process that waits, and our end of the pair over which it gets its attempt."""

    end: socket.socket
    child: _Child


class _Forking:
    """Forks on request and reports exits, waiting on descriptors only (a pidfd per child).

    One process is forked ahead and waits for the next attempt, whose own socket it is handed: what a fork costs has
    then been paid while nobody waited. It is as fresh as any other, for nothing ever runs in the parent itself.
    """

    def __init__(self, control: socket.socket, loaded: LoadedFile) -> None:
        self._control = control
        self._loaded = loaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, None)
        self._spare: _Spare | None = None

    def serve(self, *, ahead: bool) -> int:
        if ahead:
            self._fork_ahead()
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._reap(key.fd, key.data)
                elif not self._read_request():
                    self._end_spare()
                    return 0

    def _read_request(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, messages.MAX_PACKET, 1)
        if not data:
            return False
        request = msgspec.msgpack.decode(data, type=messages.Fork)
        try:
            child = self._hand_over(descriptors[0]) or self._fork(descriptors[0])
        except OSError as error:
            _say(self._control, messages.ForkFailed(slot=request.slot, error=str(error)))
            return True
        finally:
            os.close(descriptors[0])
        child.slot = request.slot
        _say(self._control, messages.Forked(slot=request.slot, pid=child.pid))
        self._fork_ahead()
        return True

    def _hand_over(self, descriptor: int) -> _Child | None:
        """Give the attempt to the process that waits; None if there is none."""
        spare, self._spare = self._spare, None
        if spare is None:
            return None
        with spare.end:
            try:
                socket.send_fds(spare.end, [b"."], [descriptor])
            except OSError:
                return None  # it was killed; its exit is noticed in its own time
        return spare.child

    def _fork_ahead(self) -> None:
        if self._spare is not None:
            return
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._spare = _Spare(end=ours, child=self._fork(theirs.fileno(), waiting_on=ours))
        except OSError:
            ours.close()  # no process to be had: the next attempt will say so

    def _end_spare(self) -> None:
        """Let the process that waits end, and see it gone: an orphan is left to whoever reaps those, however late."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.end.close()
            os.waitpid(spare.child.pid, 0)

    def _fork(self, descriptor: int, *, waiting_on: socket.socket | None = None) -> _Child:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_attempt(descriptor, parent=parent, waiting_on=waiting_on)
        child = _Child(pid=pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, child)
        return child

    def _become_attempt(self, descriptor: int, *, parent: int, waiting_on: socket.socket | None) -> None:
        status = 70  # EX_SOFTWARE, should the attempt's own code fail before it can say more
        try:
            die_with_parent(parent=parent)
            os.setsid()
            for key in list(self._selector.get_map().values()):
                if key.fd != self._control.fileno():
                    os.close(key.fd)
            self._selector.close()
            self._control.close()
            own: int | None = descriptor
            if waiting_on is not None:
                waiting_on.close()
                own = _received(descriptor)
            status = 0 if own is None else run_attempt(own, self._loaded)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # The parent's cleanup handlers are not this process's to run.
            os._exit(status)

    def _reap(self, descriptor: int, child: _Child) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(child.pid, 0)
        if child.slot is not None:
            _say(self._control, messages.Exited(slot=child.slot, status=os.waitstatus_to_exitcode(status)))
        elif self._spare is not None and self._spare.child is child:
            self._spare.end.close()
            self._spare = None


def _received(descriptor: int) -> int | None:
    """The descriptor of the attempt, once there is one; None if the parent ends first."""
    with socket.socket(fileno=descriptor) as end:
        data, descriptors, _, _ = socket.recv_fds(end, 1, 1)
    return descriptors[0] if data and descriptors else None


if __name__ == "__main__":
    _status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Neither threads nor cleanup handlers of the pipeline's code may hold up the end.
    os._exit(_status)
