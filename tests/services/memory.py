"""The memory broker as a process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[2]


class MemoryBroker:
    """``python -m providers.memory.broker`` in a temporary folder; it ends with the standard input we hold."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-memory-")
        self.path = Path(self._folder.name) / "broker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """A folder that lives as long as the broker: its path is short enough for Unix sockets."""
        return self.path.parent

    def start(self) -> None:
        """Start and wait until it listens."""
        command = [sys.executable, "-m", "providers.memory.broker", "--socket", str(self.path), "--until-stdin-closes"]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(b"memory broker on "), f"the broker did not start: {line!r}"

    def stop(self) -> None:
        """End it as a user does."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        process.wait(timeout=30)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        self._folder.cleanup()
