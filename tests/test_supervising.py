"""How standalone keeps its processes, without the processes."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from app.processes import standalone
from app.processes.executor import local
from app.processes.standalone import STOP_GRACE, Member, supervise
from app.store.postmaster import HURRIED_STOP_STEPS
from tests.waiting import eventually


async def test_a_stop_while_a_process_is_being_started_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, started = asyncio.Event(), asyncio.create_subprocess_exec

    async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
        process = await started(*command, **options)
        stop.set()
        for _ in range(10):  # the supervisor ends everyone it knows of; this process is not among them yet
            await asyncio.sleep(0)
        return process

    monkeypatch.setattr(standalone, "python_command", lambda *_: ["sleep", "1000"])
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    member = Member(name="one", arguments=())
    async with asyncio.timeout(60):
        await supervise([member], environment=os.environ, stop=stop)
    assert member.process is not None
    assert member.process.returncode is not None
    assert member.restarts == 0


def test_the_steps_of_a_stop_fit_into_the_five_seconds_that_are_promised() -> None:
    patience = [seconds for _, seconds in HURRIED_STOP_STEPS]
    assert STOP_GRACE + sum(patience[:-1]) < 4.5  # the last one is a SIGKILL; then the interpreter ends
    # An executor's own patience: twice, for attempts that do not end and for what they leave behind.
    assert 2 * local.STOP_GRACE < STOP_GRACE


async def test_one_that_does_not_end_is_killed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        standalone, "python_command", lambda *_: ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
    )
    stop = asyncio.Event()
    members = [Member(name=name, arguments=()) for name in ("one", "two")]

    async def stop_once_started() -> None:
        await eventually(lambda: all(member.process is not None for member in members), what="both run")
        stop.set()

    started = time.monotonic()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(stop_once_started())
        await supervise(members, environment=os.environ, stop=stop)
    # At the same time, not one after the other; the rest is room for a busy machine.
    assert time.monotonic() - started < 2 * STOP_GRACE + 10
    assert all(member.process is not None and member.process.returncode is not None for member in members)
