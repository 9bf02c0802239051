"""How standalone keeps its processes, without the processes."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from app.processes import standalone
from app.processes.standalone import Member, supervise


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
