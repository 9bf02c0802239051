"""Fixtures: the command line, called in this process on a database of the test's own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography.fernet import Fernet

from app.interfaces.cli.root import run
from app.services.secrets import Keys
from app.store.database import Database
from tests.triggerer.world import World

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out)


Tidegate = Callable[..., Ended]


@pytest.fixture
def tidegate(
    database_url: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tidegate:
    """Runs a command line and tells how it ended."""
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", database_url)
    monkeypatch.setenv("TIDEGATE_HOME", str(home))

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tidegate", *(str(argument) for argument in arguments)])
        with pytest.raises(SystemExit) as ended:
            run()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Ended(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def in_world(database_url: str) -> Callable[[Callable[[World], Awaitable[Result]]], Result]:
    """Runs ``work(world)`` on the database."""

    def call(work: Callable[[World], Awaitable[Result]]) -> Result:
        async def opened() -> Result:
            async with await Database.connect(database_url, pool_size=2) as database:
                return await work(World(database, Keys(Fernet.generate_key().decode())))

        return asyncio.run(opened())

    return call
