"""Removing old files of this machine's home: logs of attempts and triggers, and folders of code that is not stored.

Each scheduler and triggerer does so for its own home; several on one home do no harm to each other. Which files are
needed is asked of the database, a portion at a time; files are looked at in a thread.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

import msgspec

from app.kernel.clock import Clock, SystemClock
from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.services import retention
from app.store.database import Database
from app.store.errors import StoreError

_log = get_logger("retention")

_PORTION = 200
_DAY = 86_400.0
#: Age at which a folder of code that is not stored is removed, in seconds: it may be in the making.
_CODE_AGE = 3_600.0
#: What a folder is called while it is being removed.
_LEAVING = ".leaving-"


class FileAges(msgspec.Struct, frozen=True, kw_only=True):
    """Moments (seconds since the epoch): logs last written before the first go, those of runs that are not on record
    any more before the second. None: kept for ever."""

    logs: float | None
    orphans: float | None


class _RunLogs(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path
    dag_id: str
    run_id: str
    written: float


def ages_of(settings: Settings, *, now: float) -> FileAges:
    """What the settings say: logs go by their own age, or else with the run."""
    logs, runs = settings.retention_logs_days, settings.retention_runs_days
    return FileAges(logs=now - logs * _DAY if logs else None, orphans=now - runs * _DAY if runs else None)


def ages_before(moment: datetime) -> FileAges:
    """Everything last written before a moment."""
    return FileAges(logs=moment.timestamp(), orphans=moment.timestamp())


async def clean_home(database: Database, home: Path, *, ages: FileAges, dry_run: bool = False) -> int:
    """Remove old logs and code; how many folders of runs, logs of triggers and folders of code went.

    Never the log of a run that has not ended, or of a trigger that exists.

    Raises:
        DatabaseUnavailable: The server is away.
    """
    count = await _clean_runs(database, home / "logs", ages=ages, dry_run=dry_run)
    count += await _clean_triggers(database, home / "logs" / "triggers", ages=ages, dry_run=dry_run)
    return count + await _clean_code(database, home / "bundles", dry_run=dry_run)


async def _clean_runs(database: Database, logs: Path, *, ages: FileAges, dry_run: bool) -> int:
    limits = [limit for limit in (ages.logs, ages.orphans) if limit is not None]
    if not limits:
        return 0
    removed = 0
    found = _run_logs(logs)
    while portion := await asyncio.to_thread(lambda: list(islice(found, _PORTION))):
        old = [each for each in portion if each.written < max(limits)]
        if not old:
            continue
        known = await retention.known_runs(database, [(each.dag_id, each.run_id) for each in old])
        gone = [each.folder for each in old if _may_go(each, known.get((each.dag_id, each.run_id)), ages=ages)]
        removed += len(gone)
        if gone and not dry_run:
            await asyncio.to_thread(_remove_folders, gone)
    return removed


def _may_go(logs: _RunLogs, has_ended: bool | None, *, ages: FileAges) -> bool:
    """``has_ended`` None: there is no such run any more."""
    if has_ended is None and ages.orphans is not None and logs.written < ages.orphans:
        return True
    return has_ended is not False and ages.logs is not None and logs.written < ages.logs


def _run_logs(logs: Path) -> Iterator[_RunLogs]:
    for dag in _folders(logs, "dag_id="):
        for run in _folders(dag, "run_id="):
            yield _RunLogs(
                folder=run,
                dag_id=unquote(dag.name.removeprefix("dag_id=")),
                run_id=unquote(run.name.removeprefix("run_id=")),
                written=_last_written(run),
            )


def _folders(parent: Path, prefix: str) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [Path(each.path) for each in entries if each.name.startswith(prefix) and each.is_dir()]
    except OSError:
        return []


def _last_written(folder: Path) -> float:
    """When anything in a folder was last written; now if that cannot be told."""
    latest = 0.0
    try:
        for parent, _, names in os.walk(folder):
            latest = max(latest, Path(parent).stat().st_mtime, *(_written(Path(parent) / name) for name in names))
    except OSError:
        return time.time()
    return latest


def _written(path: Path) -> float:
    return path.stat().st_mtime


def _remove_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.parent.rmdir()
        except OSError:
            continue  # the DAG has other logs


async def _clean_triggers(database: Database, logs: Path, *, ages: FileAges, dry_run: bool) -> int:
    if ages.logs is None:
        return 0
    before = ages.logs
    old = await asyncio.to_thread(_old_files, logs, before)
    ids = {path: int(path.name.partition(".")[0]) for path in old if path.name.partition(".")[0].isdecimal()}
    kept = await retention.existing_triggers(database, sorted(set(ids.values()))) if ids else set()
    gone = [path for path in old if ids.get(path) not in kept]
    if not dry_run:
        await asyncio.to_thread(_remove_files, gone)
    return len(gone)


def _old_files(folder: Path, before: float) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(each.path) for each in entries if each.is_file() and each.stat().st_mtime < before]
    except OSError:
        return []


def _remove_files(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


async def _clean_code(database: Database, bundles: Path, *, dry_run: bool) -> int:
    folders = await asyncio.to_thread(_old_code, bundles, time.time() - _CODE_AGE)
    stored = await retention.existing_bundles(database, [folder.name for folder in folders]) if folders else set()
    gone = [folder for folder in folders if folder.name not in stored]
    if dry_run:
        return len(gone)
    moved = await asyncio.to_thread(lambda: [(folder, away) for folder in gone if (away := _move_away(folder))])
    # A version that was stored again in between is wanted where it was.
    back = await retention.existing_bundles(database, [folder.name for folder, _ in moved]) if moved else set()
    await asyncio.to_thread(_finish_code, moved, back)
    return len(moved) - len(back)


def _old_code(bundles: Path, before: float) -> list[Path]:
    try:
        with os.scandir(bundles) as entries:
            return [Path(each.path) for each in entries if each.is_dir() and each.stat().st_mtime < before]
    except OSError:
        return []


def _move_away(folder: Path) -> Path | None:
    if folder.name.startswith("."):
        return folder  # a draft that was given up, or a removal that was cut short
    try:
        return folder.rename(folder.with_name(f"{_LEAVING}{folder.name}"))
    except OSError:
        return None


def _finish_code(moved: Sequence[tuple[Path, Path]], back: set[str]) -> None:
    for folder, away in moved:
        if folder.name in back and not folder.exists():
            away.rename(folder)
        else:
            shutil.rmtree(away, ignore_errors=True)


class HomeKeeper:
    """Cleans a home steadily, for as long as its process lives."""

    def __init__(self, *, database: Database, settings: Settings, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._trouble = LimitedLog(_log, monotonic=clock.monotonic)

    @classmethod
    @asynccontextmanager
    async def keeping(cls, database: Database, settings: Settings) -> AsyncIterator[None]:
        """Clean the home while the block runs."""
        task = asyncio.create_task(cls(database=database, settings=settings, clock=SystemClock()).run_for_ever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def run_for_ever(self) -> None:
        """A round, a pause, until cancelled. A home that cannot be cleaned is told and tried again."""
        while True:
            await self._clock.sleep(self._settings.retention_interval)
            try:
                ages = ages_of(self._settings, now=self._clock.now().timestamp())
                count = await clean_home(self._database, self._settings.home, ages=ages)
            except (StoreError, OSError) as error:
                self._trouble.failed(
                    "home", "old files could not be removed", action="home_retention_failed", error=str(error)
                )
                continue
            self._trouble.recovered("home", "old files are removed again", action="home_retention_recovered")
            if count:
                _log.info("old logs and code were removed", action="home_retention", removed=count)
