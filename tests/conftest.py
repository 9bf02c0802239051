"""Fixtures for all tests: a database each, a home each, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest
import pytest_asyncio

from app.kernel.settings import Settings, load_settings
from tests.postgres import LEAK_LIMIT, PostgresForTests, running_postgres
from watchers.known_secrets import known_secrets

# Loaded early: its late import at the end of a run meets a defect of Python 3.11 (recursion depth after greenlets).
assert hypothesis

#: Threads of a loop's own executor end with the loop, after the test.
LASTING_THREADS = ("asyncio_",)


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """No setting of the person who runs the tests reaches them."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if _is_setting(name)}
    yield
    os.environ.update(kept)


def _is_setting(name: str) -> bool:
    return name.startswith(("TIDEGATE_", "PG")) and not name.startswith("TIDEGATE_TEST_")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    """The PostgreSQL of this test process (each xdist worker has its own)."""
    with running_postgres() as server:
        yield server


@pytest_asyncio.fixture
async def database_url(postgres: PostgresForTests) -> AsyncIterator[str]:
    """A fresh migrated database; the test fails if it leaves a connection open."""
    name = await postgres.create()
    try:
        yield postgres.url(name)
        leaked = await postgres.leaked(name)
        assert not leaked, f"connections left open: {leaked}"
    finally:
        await postgres.drop(name)


@pytest_asyncio.fixture
async def empty_database_url(postgres: PostgresForTests) -> AsyncIterator[str]:
    """A fresh database without any table."""
    name = await postgres.create(empty=True)
    try:
        yield postgres.url(name)
    finally:
        await postgres.drop(name)


@pytest.fixture
def home() -> Iterator[Path]:
    """A TIDEGATE_HOME of the test's own, short enough for sockets and open to an unprivileged user."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-home-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def settings(home: Path, database_url: str) -> Settings:
    """Settings on the test's home and database."""
    return load_settings(home=home, database_url=database_url)


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    """What a test teaches its process (secrets to be masked, handlers of signals) is nothing to the next one."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    known_secrets.forget_all()
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a child process, a thread or a task. What session fixtures started is older."""
    children, threads = _children(), _threads()
    if inspect.iscoroutinefunction(getattr(request.function, "__wrapped__", request.function)):
        request.getfixturevalue("_no_stray_tasks")
    yield
    deadline = time.monotonic() + LEAK_LIMIT
    while (left := _left(children, threads)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"left behind: {left}"


@pytest_asyncio.fixture
async def _no_stray_tasks() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    deadline = time.monotonic() + 1
    while (stray := asyncio.all_tasks() - before - {asyncio.current_task()}) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not stray, f"tasks left running: {[repr(task) for task in stray]}"


def _children() -> set[int]:
    """Direct children; what these start in turn is theirs to end."""
    return {child.pid for child in psutil.Process().children()}


def _threads() -> set[int]:
    return {thread.ident or 0 for thread in threading.enumerate()}


def _left(children: set[int], threads: set[int]) -> list[str]:
    found = []
    for pid in _children() - children:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            command = " ".join(process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in command:
                found.append(f"process {pid} {command[:200]}")
    found += [
        f"thread {thread.name}"
        for thread in threading.enumerate()
        if (thread.ident or 0) not in threads and not thread.daemon and not thread.name.startswith(LASTING_THREADS)
    ]
    return found
