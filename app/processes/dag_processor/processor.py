"""The loop of the dag processor: look at the folder, read what changed, retire what vanished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from app.domain.specs import LocatedError
from app.kernel.clock import Clock, SystemClock
from app.kernel.errors import TidegateError
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.dag_processor.folder import Scan, scan_folder, stamps_of
from app.processes.dag_processor.ledger import FileLedger, Stamps
from app.processes.dag_processor.reading import FileReader, Reading
from app.processes.dag_processor.watching import FolderWatcher
from app.services import dags
from app.services.assets import Encrypt
from app.services.dags import DagDefaults
from app.store.database import Database
from app.store.errors import Conflict, DatabaseUnavailable
from app.store.wakeups import Notifier

#: Longest pause of the loop, in seconds.
TICK = 1.0
#: Shortest pause between two looks at the folder, in seconds.
SPACING = 0.1
#: Files that are read at the same time; one that takes long (seconds) is then not counted, so that files that hang do
#: not hold up the others, up to a number of all.
PARALLEL = 2
LONG = 3.0
MOST_PARALLEL = 8

_log = get_logger("dag_processor")


class PipelinesFolderMissing(TidegateError):
    """There is no folder {folder} for pipeline files. Make it, or name another one with TIDEGATE_DAGS_FOLDER."""


class Progress(Protocol):
    """What the processor tells its peers (``app.services.jobs.JobSession``)."""

    def progress(self) -> None:
        """Something that the process is there for was done."""
        ...


def prepare_folder(settings: Settings, *, create: bool) -> Path:
    """The pipelines folder, made if ``create``. Raises :class:`PipelinesFolderMissing`."""
    folder = settings.pipelines_folder
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PipelinesFolderMissing(folder=folder) from error
    if not folder.is_dir():
        raise PipelinesFolderMissing(folder=folder)
    return folder


class DagProcessor:
    """Keeps the database to what the pipelines folder declares until it is cancelled.

    One file never holds up the others: each is loaded in a child of its own, and whatever it does becomes its import
    error. While the database is away nothing is lost: the folder is compared with it again afterwards.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        settings: Settings,
        *,
        job: Progress,
        encrypt: Encrypt,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._settings = settings
        self._job = job
        self._encrypt = encrypt
        self._clock = clock or SystemClock()
        self._folder = settings.pipelines_folder
        self._ledger = FileLedger(still=settings.file_still_seconds)
        self._wake = asyncio.Event()
        self._scan_due = True
        self._scanned_at = 0.0
        self._scan = Scan()
        #: Files and faults that the database knows of; None until it was asked.
        self._known: set[str] | None = None
        #: Files that the database knows to be missing.
        self._missing: set[str] = set()
        self._reported: dict[str, LocatedError] = {}
        self._retire_until = 0.0
        #: Files being read, with when that began.
        self._reading: dict[str, float] = {}
        self._trouble = LimitedLog(_log)

    async def run(self) -> None:
        """Work until cancelled; children that are loading are killed then."""
        watcher = FolderWatcher(self._folder, self._folder_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(watcher.run(), name="folder-watcher")
            while True:
                self._wake.clear()
                if await self._available(lambda: self.run_once(group)):
                    self._job.progress()
                await self._pause()

    async def run_once(self, group: asyncio.TaskGroup) -> bool:
        """Look, note what vanished, begin to read what is due (in ``group``), retire what is over; true when done."""
        now = time.monotonic()
        if self._scan_due or now - self._scanned_at >= self._settings.dag_scan_interval:
            await self._look(now)
        await self._retire(now)
        due = [path for path in self._ledger.due(now=now) if path not in self._reading]
        for path in due[: self._free_places(now)]:
            known = self._ledger.begin(path)
            self._reading[path] = now
            group.create_task(self._read(path, known), name=f"read-{path}")
        return True

    # Looking

    def _folder_changed(self, paths: set[str]) -> None:
        sources = {path for path in paths if path.endswith(".py")}
        root = f"{self._folder.resolve()}/"
        if any(path.removeprefix(root) not in self._scan.files for path in sources):
            # A helper that is no pipeline file itself may be what a refused file waits for.
            self._ledger.retry_refused()
        self._scan_due = True
        self._wake.set()

    async def _look(self, now: float) -> None:
        self._scan_due = False
        root = self._folder.resolve()
        modules = self._ledger.modules
        try:
            scan, stamps = await asyncio.to_thread(_look_at, root, modules)
        except OSError as error:
            # A folder that is not there says nothing about the files: nothing is retired for it.
            self._trouble.failed(
                "folder", "the pipelines folder cannot be read", action="folder_unreadable", error=str(error)
            )
            self._scanned_at = now
            return
        self._trouble.recovered("folder", "the pipelines folder can be read again")
        self._scanned_at, self._scan = now, scan
        self._ledger.observe(scan.files, stamps, now=now, wall=self._clock.now().timestamp())
        await self._note_faults(scan)
        await self._note_missing(scan)

    async def _note_faults(self, scan: Scan) -> None:
        for path, error in scan.faults.items():
            if self._reported.get(path) != error:
                await dags.record_import_error(self._database, error)
                if self._known is not None:
                    self._known.add(path)
        self._reported = dict(scan.faults)

    async def _note_missing(self, scan: Scan) -> None:
        if self._known is None:
            files = await dags.known_files(self._database)
            self._known, self._missing = set(files.present), set(files.missing)
            self._expect_retirement()
        back = {path for path in self._missing if path in scan.files}
        if back:
            await dags.mark_present(self._database, sorted(back))
            self._missing -= back
        gone = {path for path in self._known if not scan.holds(path)}
        if gone:
            missing = await dags.mark_missing(self._database, sorted(gone))
            self._known -= gone
            self._missing |= gone
            self._ledger.retry_refused()
            self._expect_retirement()
            _log.info("pipeline files vanished", action="files_vanished", files=sorted(gone), dags=list(missing))

    # Retiring

    def _expect_retirement(self) -> None:
        self._retire_until = time.monotonic() + self._settings.dag_retire_grace + 2 * TICK

    async def _retire(self, now: float) -> None:
        """Look for DAGs whose grace is over: while some are known to wait, and with each full scan."""
        if now > self._retire_until and now != self._scanned_at:
            return
        grace = timedelta(seconds=self._settings.dag_retire_grace)
        retired = await dags.retire_missing(self._database, self._notifier, grace=grace, encrypt=self._encrypt)
        if retired:
            self._ledger.retry_refused()
            _log.info("DAGs are retired", action="dags_retired", dags=list(retired))

    # Reading

    async def _read(self, path: str, known: Collection[str]) -> None:
        reader = FileReader(
            self._database,
            self._notifier,
            root=self._folder.resolve(),
            limit=self._settings.dag_parse_timeout,
            max_kwargs_bytes=self._settings.max_kwargs_bytes,
            defaults=DagDefaults(
                is_paused=self._settings.dags_are_paused_at_creation,
                max_active_runs=self._settings.max_active_runs_per_dag,
                max_active_tasks=self._settings.max_active_tasks_per_dag,
            ),
            team_folders=self._settings.teams,
            encrypt=self._encrypt,
            clock=self._clock,
            on_trouble=self._away,
        )
        try:
            reading = await reader.read(path, known, is_unchanged=lambda digest: self._is_unchanged(path, digest))
            self._take_in(path, reading)
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this file only
            self._ledger.abandon(path, now=time.monotonic() + self._settings.dag_scan_interval)
            self._trouble.failed(
                f"read {path}",
                "a pipeline file could not be processed",
                action="file_failed",
                file=path,
                exc_info=error,
            )
        finally:
            del self._reading[path]
            self._wake.set()

    def _free_places(self, now: float) -> int:
        recent = sum(now - began < LONG for began in self._reading.values())
        return max(min(PARALLEL - recent, MOST_PARALLEL - len(self._reading)), 0)

    def _is_unchanged(self, path: str, digest: str) -> bool:
        """A file that was missing in between has to be taken in again."""
        return self._known is not None and path in self._known and self._ledger.unchanged(path, digest=digest)

    def _take_in(self, path: str, reading: Reading) -> None:
        if reading.is_stale:
            self._ledger.abandon(path, reading.stamps, now=time.monotonic())
            return
        self._ledger.finish(path, stamps=reading.stamps, digest=reading.digest, refused=reading.is_refused)
        if self._known is not None:
            self._known.add(path)
        if reading.missing:
            self._expect_retirement()
            self._ledger.retry_refused(but=path)
        if path not in self._scan.files:
            self._scan_due = True

    # Waiting

    async def _pause(self) -> None:
        now = time.monotonic()
        due = self._ledger.next_due() if self._free_places(now) else None
        pause = TICK if due is None else min(max(due - now, SPACING), TICK)
        # Between the last look and the end of the stillness the file may have changed once more.
        self._scan_due = self._scan_due or due is not None
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(SPACING - (time.monotonic() - now), 0))

    async def _available(self, work: Callable[[], Awaitable[bool]]) -> bool:
        try:
            done = await work()
        except (DatabaseUnavailable, Conflict) as error:
            self._away(error)
            self._scan_due = True
            return False
        self._trouble.recovered("database", "the database is back")
        return done

    def _away(self, error: BaseException) -> None:
        self._trouble.failed("database", "the database is away", action="database_away", error=str(error))


def _look_at(root: Path, modules: Collection[str]) -> tuple[Scan, Stamps]:
    scan = scan_folder(root)
    return scan, stamps_of(root, modules, scan.files)
