"""The folder of everything Tidegate keeps itself, its lock, and the secrets generated there."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from app.kernel.errors import HomeInUse, HomeNotWritable

LOCK_NAME = "standalone.lock"


def prepare_home(home: Path) -> Path:
    """Make the folder if it is not there and return it.

    Only its owner may list it; as root others may pass through, because the database under it runs as another user.
    Raises :class:`HomeNotWritable`.
    """
    try:
        if not home.is_dir():
            home.mkdir(parents=True, exist_ok=True)
            home.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise HomeNotWritable(home=home) from error
    if not os.access(home, os.W_OK | os.X_OK):
        raise HomeNotWritable(home=home)
    return home


class HomeLock:
    """Keeps a second ``standalone`` off the same home. Held until closed or the process ends, however it ends."""

    def __init__(self, home: Path, name: str = LOCK_NAME) -> None:
        self._home = home
        self._path = home / name
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock at once or raise :class:`HomeInUse` naming the holder's pid."""
        prepare_home(self._home)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise HomeNotWritable(home=self._home) from error
            raise HomeInUse(home=self._home, pid=holder) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would let two hold "the" lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> HomeLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def stored_secret(path: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> tuple[str, bool]:
    """The secret kept in ``path`` (mode 0600), made by ``make`` the first time; and whether it was made now.

    Two processes that both find none agree on one: the first to link its finished file wins.
    """
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8").strip(), False
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(make() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
            return path.read_text(encoding="utf-8").strip(), True
    finally:
        draft.unlink()
    return path.read_text(encoding="utf-8").strip(), False
