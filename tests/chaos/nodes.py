"""One process of a deployment that a test starts, kills, stops, freezes and starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from app.kernel.children import PARENT_VARIABLE

ROOT = Path(__file__).resolve().parents[2]


class Node:
    """`tidegate <kind>`. Its log gathers over its lives."""

    def __init__(
        self,
        name: str,
        *,
        kind: str,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str],
        folder: Path,
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self.kind = kind
        self.log = folder / f"{name}.log"
        self._arguments = arguments
        self._environment = dict(environment)
        self._folder = folder
        self._note = note
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process is there (frozen or not)."""
        return self._process is not None and self._process.poll() is None

    def start(self, **more: str) -> None:
        """Start it, with ``more`` in its environment. It ends with the test process, however that ends."""
        assert not self.is_running, f"{self.name} runs already"
        environment = {**self._environment, **more, PARENT_VARIABLE: str(os.getpid())}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "app.main", self.kind, *self._arguments],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._note(f"{self.name} started, pid {self.pid}")

    def kill(self) -> float:
        """SIGKILL; when, by ``time.monotonic()``. Its children die with it."""
        at = time.monotonic()
        self.send(signal.SIGKILL)
        self.reap()
        return at

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself."""
        os.kill(self.pid, number)
        self._note(f"{self.name} (pid {self.pid}) gets {number.name}")

    def reap(self, *, within: float = 30.0) -> int:
        """Wait for its end; its status."""
        assert self._process is not None
        status = self._process.wait(within)
        self._note(f"{self.name} (pid {self._process.pid}) ended with {status}")
        return status

    def children(self) -> list[psutil.Process]:
        """Processes below it."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def freeze(self, *, children: bool = True) -> None:
        """SIGSTOP, the children first."""
        for child in self.children() if children else []:
            child.suspend()
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT to it and its children."""
        self.send(signal.SIGCONT)
        for child in self.children():
            child.resume()

    def stop(self, *, within: float = 30.0) -> None:
        """SIGTERM and wait; killed if it does not end in time."""
        if not self.is_running:
            return
        self.thaw()
        self.send(signal.SIGTERM)
        try:
            self.reap(within=within)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {within} s\n{self.log_end()}") from None

    def log_end(self, lines: int = 30) -> str:
        """What it said last."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
