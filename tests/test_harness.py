"""The harness itself: clones are separate, and what a test leaves behind makes it fail."""

from __future__ import annotations

import asyncpg
import pytest

from app.kernel.settings import Settings
from app.store import migrate
from tests.postgres import PostgresForTests
from tests.waiting import eventually, eventually_sync

pytest_plugins = ["pytester"]

LEAKS = """
import asyncio, subprocess, threading
import asyncpg, pytest

kept = []

async def test_connection(database_url):
    kept.append(await asyncpg.connect(database_url))

def test_process():
    kept.append(subprocess.Popen(["/bin/sleep", "20"]))

def test_thread():
    gate = threading.Event()
    kept.append(gate)
    threading.Thread(target=gate.wait, args=(20,)).start()

async def test_task():
    kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(20)))

async def test_clean(database_url):
    connection = await asyncpg.connect(database_url)
    await connection.close()

def test_end():
    kept[1].kill(); kept[1].wait(); kept[2].set()
"""


async def test_databases_are_separate_and_migrated(database_url: str, postgres: PostgresForTests) -> None:
    await migrate.check(database_url)
    other = await postgres.create()
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE TABLE only_here ()")
    await connection.close()
    connection = await asyncpg.connect(postgres.url(other))
    assert await connection.fetchval("SELECT to_regclass('only_here')") is None
    await connection.close()
    await postgres.drop(other)


def test_settings_name_the_database(settings: Settings, database_url: str) -> None:
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == database_url
    assert settings.home.is_dir()


def test_what_is_left_behind_is_found(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest("pytest_plugins = ['tests.conftest']\n")
    monkeypatch.setenv("TIDEGATE_TEST_LEAK_LIMIT", "0.3")
    pytester.makepyfile(test_leaks=LEAKS)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-o", f"pythonpath={pytestconfig.rootpath}", "--log-level=ERROR", timeout=50
    )
    result.assert_outcomes(passed=6, errors=4)
    for complaint in ("connections left open", "left behind: *sleep", "left behind: *thread", "tasks left running"):
        result.stdout.fnmatch_lines([f"*{complaint}*"])


async def test_eventually_gives_the_answer_or_tells_the_last_one() -> None:
    answers = iter([0, None, 7])
    assert await eventually(lambda: next(answers)) == 7

    async def never() -> bool:
        raise AssertionError("not yet")

    with pytest.raises(AssertionError, match=r"not true within 0\.05 s.*never"):
        await eventually(never, 0.05)
    with pytest.raises(ZeroDivisionError):
        await eventually(lambda: 1 / 0)


def test_eventually_sync() -> None:
    answers = iter([[], [1]])
    assert eventually_sync(lambda: next(answers)) == [1]
    with pytest.raises(AssertionError, match="last answer: 0"):
        eventually_sync(lambda: 0, 0.02, what="zero")
