"""Triggers for a crowd: some that only wait, and one that holds them all up."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from watchers.triggers import BaseEventTrigger, TriggerEvent, Yielded


class Waits(BaseEventTrigger):
    """Says once in which process it runs, and waits."""

    def __init__(self, number: int) -> None:
        self.number = number

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Waits", {"number": self.number}

    async def run(self) -> AsyncIterator[Yielded]:
        yield TriggerEvent(os.getpid())
        await asyncio.sleep(3600)


class Sleeps(BaseEventTrigger):
    """Notes the moment in ``folder/began`` and holds the loop for a minute, as often as it is started."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Sleeps", {"folder": self.folder}

    async def run(self) -> AsyncIterator[Yielded]:
        with (Path(self.folder) / "began").open("a") as file:
            file.write(f"{time.time()}\n")
        time.sleep(60)  # noqa: ASYNC251 — that is the point
        yield TriggerEvent("slept")
