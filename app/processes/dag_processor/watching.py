"""Notices changes below the pipelines folder, as fast as the system tells and in any case now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

from app.kernel.telemetry import LimitedLog, get_logger

#: Changes are gathered for at most this long, in milliseconds, so that a storm of them costs a few looks a second.
_GATHERING = 200
_STEP = 20
#: Time without a change after which watching answers nevertheless, in milliseconds.
_CONFIRMATION = 500
#: Pause before watching is tried again, and between looks at whether the folder was replaced, in seconds.
_PAUSE = 1.0

_log = get_logger("dag_processor")


class FolderWatcher:
    """Calls ``changed`` with the (absolute) paths that changed below ``folder``; with none if anything may have."""

    def __init__(self, folder: Path, changed: Callable[[set[str]], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._trouble = LimitedLog(_log)

    async def run(self) -> None:
        """Watch until cancelled. A folder that vanishes or is replaced (a link, say) is found again."""
        while True:
            identity = folder_identity(self._folder)
            if identity is not None:
                stop = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(identity[0], stop))
                    while not watching.done() and folder_identity(self._folder) == identity:
                        await asyncio.wait([watching], timeout=_PAUSE)
                    stop.set()
                self._changed(set())
            await asyncio.sleep(_PAUSE)

    async def _watch(self, real: str, stop: asyncio.Event) -> None:
        confirmed = False
        try:
            async for changes in awatch(
                real,
                watch_filter=None,
                debounce=_GATHERING,
                step=_STEP,
                stop_event=stop,
                rust_timeout=_CONFIRMATION,
                yield_on_timeout=True,
                ignore_permission_denied=True,
            ):
                if changes or not confirmed:
                    # The first answer without a change says that watching began; whatever came before needs a look.
                    self._changed({path for _, path in changes})
                confirmed = True
                self._trouble.recovered("watch", "changes of the pipelines folder are noticed at once again")
        except (OSError, RuntimeError) as error:
            # Too many watches, a file system without them, or a folder that just vanished: full scans go on.
            self._trouble.failed(
                "watch",
                "changes of the pipelines folder are noticed only by full scans",
                action="folder_not_watched",
                folder=str(self._folder),
                error=str(error),
            )


def folder_identity(folder: Path) -> tuple[str, int, int] | None:
    """What changes when the folder is replaced; None while it is not there."""
    with suppress(OSError):
        real = folder.resolve(strict=True)
        status = real.stat()
        if real.is_dir():
            return str(real), status.st_dev, status.st_ino
    return None
