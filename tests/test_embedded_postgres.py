"""The embedded PostgreSQL: as root and not, where its user cannot enter, after kill -9, and twice on one home."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from app.kernel.errors import DatabaseBinariesMissing, EmbeddedDatabaseError, HomeInUse
from app.kernel.settings import Settings, load_settings
from app.store.embedded import OUTSIDE, EmbeddedPostgres, outside_place, running_dsn
from app.store.postmaster import pid_file, read_postmaster
from tests.waiting import eventually_sync

pytestmark = pytest.mark.timeout(120)
ROOT = os.geteuid() == 0


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that an unprivileged user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def hidden_home() -> Iterator[Path]:
    """A home under a folder that only its owner can enter, as root's own is."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-test-"))
    yield folder / ".tidegate"
    shutil.rmtree(folder)
    shutil.rmtree(outside_place(folder / ".tidegate"), ignore_errors=True)


def settings_for(home: Path, **more: object) -> Settings:
    return load_settings(home=home, postgres_fsync=False, **more)


async def rows(dsn: str) -> list[int]:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (number integer)")
        await connection.execute("INSERT INTO kept SELECT count(*) FROM kept")
        return [row["number"] for row in await connection.fetch("SELECT number FROM kept ORDER BY 1")]
    finally:
        await connection.close()


async def test_starts_serves_stops_and_keeps(home: Path) -> None:
    told: list[str] = []
    settings = settings_for(home)
    async with EmbeddedPostgres(settings, progress=told.append) as server:
        assert await rows(server.dsn) == [0]
        assert running_dsn(settings) == server.dsn
        pid = server.pid
        assert pid
        if ROOT:
            assert psutil.Process(pid).uids().real != 0
        connection = await asyncpg.connect(server.dsn)
        assert await connection.fetchval("SHOW client_connection_check_interval") == "250ms"
        assert await connection.fetchval("SHOW fsync") == "off"
        assert await connection.fetchval("SHOW server_encoding") == "UTF8"
        await connection.close()
    assert told == ["Creating the database (once)"]
    assert not psutil.pid_exists(pid)
    assert running_dsn(settings) is None
    async with EmbeddedPostgres(settings, progress=told.append) as server:
        assert await rows(server.dsn) == [0, 1]
    assert len(told) == 1


async def test_asks_for_the_password(home: Path) -> None:
    async with EmbeddedPostgres(settings_for(home)) as server:
        wrong = f"postgresql://tidegate:wrong@127.0.0.1:{server.port}/tidegate"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(wrong)
        socket_folder = read_postmaster(home / "postgres" / "data")
        assert socket_folder
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(
                host=socket_folder.socket_folder,
                port=server.port,
                user="tidegate",
                password="wrong",
                database="tidegate",
            )
    assert (home / "postgres.password").stat().st_mode & 0o777 == 0o600


async def test_a_second_one_on_the_same_home_is_refused(home: Path) -> None:
    async with EmbeddedPostgres(settings_for(home)) as server:
        with pytest.raises(HomeInUse, match=str(os.getpid())):
            await EmbeddedPostgres(settings_for(home)).start()
        assert await rows(server.dsn) == [0]


async def test_a_foreign_password_file_is_told(home: Path) -> None:
    async with EmbeddedPostgres(settings_for(home)):
        pass
    (home / "postgres.password").write_text("other\n")
    with pytest.raises(EmbeddedDatabaseError, match=r"postgres\.password"):
        await EmbeddedPostgres(settings_for(home)).start()


async def test_a_database_of_another_version_is_told(home: Path) -> None:
    async with EmbeddedPostgres(settings_for(home)):
        pass
    (home / "postgres" / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedDatabaseError, match="made by PostgreSQL 12"):
        await EmbeddedPostgres(settings_for(home)).start()


async def test_why_it_does_not_start_is_told(home: Path) -> None:
    async with EmbeddedPostgres(settings_for(home)):
        pass
    with (home / "postgres" / "data" / "postgresql.conf").open("a") as file:
        file.write("no_such_option = 1\n")
    with pytest.raises(EmbeddedDatabaseError, match="no_such_option"):
        await EmbeddedPostgres(settings_for(home)).start()


async def test_an_interrupted_creation_begins_anew(home: Path) -> None:
    (home / "postgres" / "data.12345678").mkdir(parents=True)
    async with EmbeddedPostgres(settings_for(home)) as server:
        assert await rows(server.dsn) == [0]
    assert sorted(path.name for path in (home / "postgres").iterdir()) == ["data", "run"]


async def test_binaries_of_the_machine_serve_as_well(home: Path) -> None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not folders:
        pytest.skip("no PostgreSQL of the machine")
    async with EmbeddedPostgres(settings_for(home, postgres_bin=folders[-1].parent)) as server:
        assert await rows(server.dsn) == [0]


async def test_missing_binaries_name_the_remedy(home: Path) -> None:
    with pytest.raises(DatabaseBinariesMissing, match="TIDEGATE_DATABASE_URL"):
        await EmbeddedPostgres(settings_for(home, postgres_bin=home)).start()


async def test_an_end_by_itself_is_noticed(home: Path) -> None:
    server = EmbeddedPostgres(settings_for(home))
    async with server:
        assert server.pid
        os.kill(server.pid, signal.SIGQUIT)
        async with asyncio.timeout(30):
            await server.wait()
        assert server.pid is None


async def test_a_deep_home_gets_a_short_socket_folder(home: Path) -> None:
    deep = home / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    async with EmbeddedPostgres(settings_for(deep)) as server:
        assert await rows(server.dsn) == [0]
        found = read_postmaster(deep / "postgres" / "data")
        assert found
        assert Path(found.socket_folder).exists()
    assert not Path(found.socket_folder).exists()


@pytest.mark.skipif(not ROOT, reason="only root has to give up rights")
async def test_root_with_a_home_that_others_cannot_enter(hidden_home: Path) -> None:
    told: list[str] = []
    settings = settings_for(hidden_home)
    async with EmbeddedPostgres(settings, progress=told.append) as server:
        assert await rows(server.dsn) == [0]
        assert running_dsn(settings) == server.dsn
        assert server.pid
        assert psutil.Process(server.pid).uids().real != 0
    async with EmbeddedPostgres(settings) as server:
        assert await rows(server.dsn) == [0, 1]
    assert not (hidden_home / "postgres").exists()


@pytest.mark.skipif(not ROOT, reason="only root has to give up rights")
async def test_root_with_binaries_that_others_cannot_enter(hidden_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment in root's home: the programs are copied with their libraries beside them."""
    from app.store import binaries

    source = binaries.find_binaries(None).parent.parent
    copy = hidden_home.parent / "site"
    shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("pginstall", "include", "*.a"))
    shutil.copytree(source.with_name(f"{source.name}.libs"), copy / f"{source.name}.libs")
    settings = settings_for(hidden_home, postgres_bin=copy / source.name / "pginstall18" / "bin")
    told: list[str] = []
    async with EmbeddedPostgres(settings, progress=told.append) as server:
        assert await rows(server.dsn) == [0]
        assert server.pid
        assert str(OUTSIDE) in psutil.Process(server.pid).exe()
    assert any("Copying" in line for line in told)


HOLDER = """
import asyncio, sys
from pathlib import Path
from app.kernel.settings import load_settings
from app.store.embedded import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres(load_settings(home=Path(sys.argv[1]), postgres_fsync=False)) as server:
        print(server.pid, server.dsn, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def hold(home: Path) -> tuple[subprocess.Popen[str], int, str]:
    """Another process that runs the server of ``home``."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    pid, dsn = process.stdout.readline().split()
    return process, int(pid), dsn


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_ends_with_a_killed_parent(home: Path) -> None:
    holder, pid, dsn = hold(home)
    with holder:
        assert await rows(dsn) == [0]
        holder.kill()
    eventually_sync(lambda: gone(pid))
    async with EmbeddedPostgres(settings_for(home)) as server:
        assert await rows(server.dsn) == [0, 1]


async def test_everything_killed_at_once(home: Path) -> None:
    holder, pid, dsn = hold(home)
    with holder:
        assert await rows(dsn) == [0]
        os.kill(pid, signal.SIGKILL)
        holder.kill()
    assert pid_file(home / "postgres" / "data").exists()
    async with EmbeddedPostgres(settings_for(home)) as server:
        assert await rows(server.dsn) == [0, 1]


async def test_a_leftover_server_is_ended_and_a_stale_pid_is_not(home: Path) -> None:
    """The pid file may name a living server of ours, or after a restart of the machine any process at all."""
    async with EmbeddedPostgres(settings_for(home)) as server:
        data = home / "postgres" / "data"
        told = pid_file(data).read_text().splitlines()
    with subprocess.Popen(["/bin/sleep", "600"]) as innocent:
        pid_file(data).write_text("\n".join([str(innocent.pid), *told[1:]]))
        async with EmbeddedPostgres(settings_for(home)) as server:
            assert await rows(server.dsn) == [0]
        assert innocent.poll() is None
        innocent.kill()
    leftover = EmbeddedPostgres(settings_for(home))
    await leftover.start()
    pid = leftover.pid
    assert pid
    # As if its Tidegate had died without taking it along.
    leftover._lock.release()
    said: list[str] = []
    async with EmbeddedPostgres(settings_for(home), progress=said.append) as server:
        assert await rows(server.dsn) == [0, 1]
        assert server.pid != pid
    assert said == ["Ended a PostgreSQL left over from an earlier run"]
    await leftover.stop()
