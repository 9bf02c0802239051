"""A PostgreSQL of our own under the home folder, for machines without one.

The server is a direct child, listens on a Unix socket and on 127.0.0.1, asks for a generated password (scram), and
ends with this process even if that is killed. What a killed one left behind is ended and recovered by the next start.
As root the server runs as an unprivileged user; where that user cannot enter the home, data and programs go under
``/var/lib/tidegate/<hash of the home>``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import asyncpg

from app.kernel.children import foreign_command, scrubbed_environment
from app.kernel.errors import EmbeddedDatabaseError
from app.kernel.home import HomeLock, prepare_home, stored_secret
from app.kernel.settings import Settings
from app.store.binaries import Account, account_for, find_binaries, reachable_binaries
from app.store.postmaster import HURRIED_STOP_STEPS, clear_sockets, pid_file, read_postmaster, runs_on, stop_leftover

USER = "tidegate"
DATABASE = "tidegate"
OUTSIDE = Path("/var/lib/tidegate")
# Sorted by code point everywhere; letters beyond ASCII have cases where the machine has this locale.
LOCALE = "--locale=C.UTF-8" if sys.platform == "linux" else "--no-locale"
START_LIMIT = 120.0
START_TRIES = 5
LOG_LIMIT = 4 * 1024 * 1024
# sockaddr_un holds 104 (macOS) to 108 bytes; PostgreSQL adds "/.s.PGSQL.65535".
SOCKET_FOLDER_LIMIT = 85


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where one embedded server lives and as whom it runs."""

    account: Account | None
    base: Path
    binaries: Path

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def user(self) -> tuple[int, int] | None:
        return self.account.pair if self.account else None


class EmbeddedPostgres:
    """The embedded server of one home: ``async with EmbeddedPostgres(settings) as server: server.dsn``.

    Enter it on an event loop of the main thread: the server ends with the thread that started it. ``progress`` is told
    in a few words what takes time. Raises :class:`app.kernel.errors.HomeInUse` if another process runs this home's
    server, :class:`EmbeddedDatabaseError` with the end of the server's log if it does not start.
    """

    def __init__(
        self, settings: Settings, *, progress: Callable[[str], None] | None = None, max_connections: int = 200
    ) -> None:
        self._settings = settings
        self._progress = progress or (lambda _message: None)
        self._max_connections = max_connections
        self._lock = HomeLock(settings.home, "postgres.lock")
        self._process: subprocess.Popen[bytes] | None = None
        self._place: _Place | None = None
        self._socket_folder: Path | None = None
        self._port = 0
        self._password = ""

    @property
    def dsn(self) -> str:
        """URL of the database, password included, over TCP on 127.0.0.1."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/{DATABASE}"

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log_path(self) -> Path:
        """Where the server writes what it has to say."""
        return self._settings.home / "postgres.log"

    async def start(self) -> None:
        """Make the database if there is none, start the server, and return once it answers."""
        self._lock.acquire()
        try:
            self._place = await asyncio.to_thread(self._prepare)
            await self._launch_patiently(self._place)
            await self._ensure_database()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server: fast shutdown first, then harder. Does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            for number, patience in HURRIED_STOP_STEPS:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                if await _ended(process, patience):
                    break
        if (
            self._socket_folder is not None
            and self._place is not None
            and self._socket_folder.parent != self._place.base
        ):
            clear_sockets(self._socket_folder)
            self._socket_folder.rmdir()
        self._socket_folder = None
        self._lock.release()

    async def restart(self) -> None:
        """Start the server again after it ended by itself, under the same address; raises like :meth:`start`."""
        if self._place is None:
            raise EmbeddedDatabaseError("the embedded PostgreSQL was not started")
        await asyncio.to_thread(stop_leftover, self._place.data)
        await self._launch_patiently(self._place, keep_port=True)

    async def wait(self) -> int:
        """Return the exit code once the server has ended by itself."""
        process = self._process
        if process is None:
            raise EmbeddedDatabaseError("the embedded PostgreSQL was not started")
        while not await _ended(process, 3600.0):
            pass
        return process.returncode

    async def __aenter__(self) -> EmbeddedPostgres:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Preparing (blocking, in a thread)

    def _prepare(self) -> _Place:
        home = prepare_home(self._settings.home)
        self._password, _ = stored_secret(home / "postgres.password")
        place = self._settle(home)
        if stop_leftover(place.data):
            self._progress("Ended a PostgreSQL left over from an earlier run")
        if not (place.data / "PG_VERSION").exists():
            self._progress("Creating the database (once)")
            self._make_cluster(place)
        self._check_version(place)
        self._socket_folder = _socket_folder(place)
        return place

    def _settle(self, home: Path) -> _Place:
        """Choose the place: under the home, unless the user who will run the server cannot get there."""
        own, outside = home / "postgres", outside_place(home)
        account = account_for(outside / "data" if (outside / "data").exists() else own / "data")
        if account is None:
            _make_folder(own, None)
            return _Place(account=None, base=own, binaries=find_binaries(self._settings.postgres_bin))
        base = own
        if (outside / "data").exists():
            base = outside
        elif not _reaches(account, own):
            if (own / "data").exists():
                raise EmbeddedDatabaseError(
                    f"the database in {own} belongs to user {account.uid}, who cannot enter that folder any more. Let "
                    f"others pass through the folders above it (chmod a+x), or move the home."
                )
            base = outside
        if base == outside:
            OUTSIDE.mkdir(mode=0o711, parents=True, exist_ok=True)
            _make_folder(outside, account)
        found = find_binaries(self._settings.postgres_bin)
        if not all(account.may_run(found / program) for program in ("postgres", "initdb")):
            self._progress("Copying PostgreSQL to where an unprivileged user can run it (once)")
        return _Place(account=account, base=base, binaries=reachable_binaries(found, account, base))

    def _make_cluster(self, place: _Place) -> None:
        """Run initdb beside the final place, so that an interrupted one leaves nothing that looks finished."""
        for stale in place.base.glob("data.*"):
            shutil.rmtree(stale, ignore_errors=True)
        draft = place.base / f"data.{secrets.token_hex(4)}"
        password = place.base / f"password.{secrets.token_hex(4)}"
        descriptor = os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(self._password + "\n")
            if place.account:
                os.chown(password, *place.account.pair)
            options = ["-A", "scram-sha-256", "-U", USER, f"--pwfile={password}", "-E", "UTF8", LOCALE]
            if not self._settings.postgres_fsync:
                options.append("--no-sync")
            self._run(place, "initdb", "-D", str(draft), *options)
        finally:
            password.unlink()
        draft.rename(place.data)

    def _check_version(self, place: _Place) -> None:
        made_by = (place.data / "PG_VERSION").read_text().strip()
        told = self._run(place, "postgres", "--version")
        runs = told.split()[2].partition(".")[0]
        if runs.isdigit() and int(runs) < 15:
            raise EmbeddedDatabaseError(f"{place.binaries} holds PostgreSQL {runs}; 15 or later is needed.")
        if runs != made_by:
            raise EmbeddedDatabaseError(
                f"the database in {place.data} was made by PostgreSQL {made_by}, the programs in {place.binaries} are "
                f"{runs}. Name those of {made_by} with TIDEGATE_POSTGRES_BIN, or dump and restore into a new home."
            )

    def _run(self, place: _Place, program: str, *arguments: str) -> str:
        command = foreign_command(place.binaries / program, *arguments, user=place.user)
        done = subprocess.run(
            command, cwd="/", env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise EmbeddedDatabaseError(
                f"{program} failed ({done.returncode}): {(done.stderr or done.stdout).strip()[-2000:]}"
            )
        return done.stdout

    # Running

    async def _launch_patiently(self, place: _Place, *, keep_port: bool = False) -> None:
        """Start; again if the port was taken meanwhile or processes of a killed server still hold its memory."""
        for attempt in range(1, START_TRIES + 1):
            self._launch(place)
            if await self._answers(place):
                return
            said = self._log_end()
            taken = "could not bind" in said
            if attempt == START_TRIES or not (taken or "still in use" in said or "lock file" in said):
                raise EmbeddedDatabaseError(reason=f"it ended while starting: {said}", log=self.log_path)
            if taken and not keep_port:
                self._port = 0
            await asyncio.sleep(0.5 * attempt)

    def _launch(self, place: _Place) -> None:
        assert self._socket_folder is not None
        clear_sockets(self._socket_folder)
        pid_file(place.data).unlink(missing_ok=True)
        self._port = self._port or _free_port()
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": self._socket_folder,
            "unix_socket_permissions": "0700",
            "max_connections": self._max_connections,
            "fsync": "on" if self._settings.postgres_fsync else "off",
            "client_connection_check_interval": "250ms",
            "jit": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with self._open_log() as log:
            self._process = subprocess.Popen(
                foreign_command(
                    place.binaries / "postgres", "-D", str(place.data), *arguments,
                    user=place.user, on_parent_death=signal.SIGINT,
                ),
                cwd="/", env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # Ctrl-C in a terminal is for Tidegate, which stops the server last.
                start_new_session=True,
            )  # fmt: skip

    def _open_log(self) -> IO[bytes]:
        with contextlib.suppress(FileNotFoundError):
            if self.log_path.stat().st_size > LOG_LIMIT:
                self.log_path.replace(self.log_path.with_suffix(".log.1"))
        descriptor = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "ab")

    async def _answers(self, place: _Place) -> bool:
        """Wait until the server is ready (true) or has ended (false)."""
        assert self._process is not None
        loop = asyncio.get_running_loop()
        begin = loop.time()
        told = False
        while self._process.poll() is None:
            found = read_postmaster(place.data)
            if found and found.ready and found.pid == self._process.pid:
                return True
            waited = loop.time() - begin
            if waited > 2 and not told:
                self._progress("Waiting for the database to recover")
                told = True
            if waited > START_LIMIT:
                raise EmbeddedDatabaseError(reason=f"not ready within {START_LIMIT:.0f} s", log=self.log_path)
            await asyncio.sleep(0.01)
        return False

    def _log_end(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return " ".join(self.log_path.read_text(errors="replace")[-1500:].split())
        return ""

    async def _ensure_database(self) -> None:
        address = f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/postgres"
        try:
            connection = await asyncpg.connect(address, timeout=10)
        except asyncpg.InvalidPasswordError as error:
            raise EmbeddedDatabaseError(
                f"the password in {self._settings.home / 'postgres.password'} does not fit the database. Put the right "
                "one back, or move the database away to begin anew."
            ) from error
        try:
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await connection.close()


def outside_place(home: Path) -> Path:
    """Where data and programs go for a home that the server's user cannot enter."""
    return OUTSIDE / hashlib.sha256(str(home).encode()).hexdigest()[:16]


def running_dsn(settings: Settings) -> str | None:
    """URL of this home's embedded server if another process of ours runs it now, else None."""
    home = settings.home
    for base in (outside_place(home), home / "postgres"):
        with contextlib.suppress(PermissionError, FileNotFoundError):
            found = read_postmaster(base / "data")
            if found and found.ready and runs_on(base / "data", found.pid):
                password = (home / "postgres.password").read_text(encoding="utf-8").strip()
                return f"postgresql://{USER}:{password}@127.0.0.1:{found.port}/{DATABASE}"
    return None


def _environment() -> dict[str, str]:
    """No secrets, and no locale of the caller: messages are read by us."""
    return {**scrubbed_environment(), "LC_ALL": "C", "TZ": "UTC"}


def _make_folder(folder: Path, account: Account | None) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if account:
        os.chown(folder, *account.pair)


def _reaches(account: Account, folder: Path) -> bool:
    """Whether the account can work in ``folder``, which is made if missing and removed again if it is of no use."""
    made = not folder.exists()
    if not (folder / "data").exists():
        _make_folder(folder, account)
    if account.may_enter(folder):
        return True
    if made:
        folder.rmdir()
    return False


def _socket_folder(place: _Place) -> Path:
    folder = place.base / "run"
    if len(str(folder).encode()) > SOCKET_FOLDER_LIMIT:
        folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
    _make_folder(folder, place.account)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _ended(process: subprocess.Popen[bytes], patience: float) -> bool:
    """Whether ``process`` has ended within ``patience`` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    pause = 0.005
    while process.poll() is None:
        if loop.time() > deadline:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.25, patience / 25)
    return True
