"""The runners of a triggerer: one for installed code, one a bundle, one a quarantined trigger; started when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app.processes.triggerer.messages import Configure, Lease
from app.processes.triggerer.runner import RunnerEnd, RunnerKey, RunnerProcess

OnFrame = Callable[[RunnerProcess, Any], None]
OnOutput = Callable[[RunnerProcess, bytes], None]
OnEnd = Callable[[RunnerProcess, RunnerEnd], None]


class Runners:
    """Keeps at most one live runner a key. Their tasks belong to ``group``."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        prepare: Callable[[RunnerKey], Awaitable[Configure]],
        environment: Mapping[str, str],
        block_warning: float,
    ) -> None:
        self._group = group
        self._prepare = prepare
        self._environment = environment
        self._block_warning = block_warning
        self._live: dict[RunnerKey, RunnerProcess] = {}
        self._all: dict[RunnerProcess, asyncio.Task[None]] = {}
        self._kept: RunnerKey | None = None
        self._callbacks: tuple[OnFrame, OnOutput, OnEnd] | None = None

    def serve(self, *, on_frame: OnFrame, on_output: OnOutput, on_end: OnEnd) -> None:
        """Say who hears of frames, output and ends."""
        self._callbacks = (on_frame, on_output, on_end)

    @property
    def live(self) -> list[RunnerProcess]:
        """Runners that take triggers."""
        return [runner for runner in self._live.values() if not runner.is_over]

    def get(self, key: RunnerKey) -> RunnerProcess:
        """The runner for ``key``, started now if there is none."""
        runner = self._live.get(key)
        if runner is None or runner.is_over:
            assert self._callbacks is not None
            on_frame, on_output, _ = self._callbacks
            runner = RunnerProcess(
                key,
                prepare=lambda: self._prepare(key),
                environment=self._environment,
                block_warning=self._block_warning,
                on_frame=on_frame,
                on_output=on_output,
            )
            self._live[key] = runner
            self._all[runner] = self._group.create_task(self._run(runner), name=f"runner-{key}")
        return runner

    def keep(self, key: RunnerKey | None) -> None:
        """Do not end the runner of this key although it has nothing to run."""
        self._kept = key

    def announce_lease(self) -> None:
        """The lease was renewed."""
        for runner in self.live:
            runner.send(Lease())

    def retire(self, is_idle: Callable[[RunnerProcess], bool]) -> None:
        """End those that have nothing to run."""
        for key, runner in list(self._live.items()):
            if key != self._kept and is_idle(runner):
                del self._live[key]
                if not runner.is_over:
                    self._group.create_task(runner.close(), name=f"close-{key}")

    async def close(self) -> None:
        """End all; each gets the time to close what it runs."""
        self._live.clear()
        await asyncio.gather(*(runner.close() for runner in list(self._all)))
        await asyncio.gather(*self._all.values(), return_exceptions=True)

    def kill(self) -> None:
        """End all at once."""
        for runner, task in list(self._all.items()):
            runner.kill()
            if runner.pid is None:
                task.cancel()

    async def _run(self, runner: RunnerProcess) -> None:
        try:
            end = await runner.run()
        finally:
            self._all.pop(runner, None)
            if self._live.get(runner.key) is runner:
                del self._live[runner.key]
        assert self._callbacks is not None
        self._callbacks[2](runner, end)
