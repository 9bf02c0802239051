"""Reading one pipeline file: load it, make sure that what was loaded is what is stored, bring it into force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from app.domain.bundles import bundle_digest
from app.domain.placement import in_team, team_of
from app.domain.specs import LoadResult, LocatedError
from app.kernel.clock import Clock
from app.kernel.telemetry import get_logger
from app.processes.dag_processor.folder import Stamp, read_sources
from app.processes.dag_processor.ledger import Stamps
from app.processes.dag_processor.loading import load_in_child
from app.services import dags
from app.services.assets import Encrypt
from app.services.dags import DagDefaults
from app.store.database import Database
from app.store.errors import ConstraintViolated, DataRefused
from app.store.wakeups import Notifier

#: A module that was not known to belong to the file must be older than the load by this, in nanoseconds: the clock of
#: file systems is coarse.
_COARSENESS = 20_000_000

_log = get_logger("dag_processor")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of reading a file.

    ``stamps`` and ``digest`` are those of the files that count as read; ``is_stale`` means that they changed meanwhile
    and nothing was brought into force; ``missing`` are DAGs that the file does not declare any more.
    """

    stamps: Stamps
    digest: str | None = None
    is_refused: bool = False
    is_stale: bool = False
    missing: tuple[str, ...] = ()


class FileReader:
    """Reads pipeline files of one folder."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        *,
        root: Path,
        limit: float,
        max_kwargs_bytes: int,
        defaults: DagDefaults,
        team_folders: Collection[str],
        encrypt: Encrypt,
        clock: Clock,
        on_trouble: Callable[[BaseException], None],
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._root = root
        self._limit = limit
        self._max_kwargs_bytes = max_kwargs_bytes
        self._defaults = defaults
        self._team_folders = team_folders
        self._encrypt = encrypt
        self._clock = clock
        self._on_trouble = on_trouble

    async def read(self, path: str, known: Collection[str], *, is_unchanged: Callable[[str], bool]) -> Reading:
        """Read the file. ``known`` are the modules it loaded last time; ``is_unchanged`` knows their digest then."""
        sources, before = await asyncio.to_thread(read_sources, self._root, sorted({path, *known}))
        digest = bundle_digest(sources, entry=path)
        if None not in before.values() and is_unchanged(digest):
            return Reading(stamps=before, digest=digest)
        started = self._clock.now().timestamp() * 1e9
        result = await load_in_child(str(self._root), path, limit=self._limit, max_kwargs_bytes=self._max_kwargs_bytes)
        sources, after = await asyncio.to_thread(read_sources, self._root, sorted({path, *result.modules}))
        if not _is_stable(before, after, started=started):
            return Reading(stamps=after, is_stale=True)
        return await self._bring_into_force(result, sources=sources, stamps=after)

    async def _bring_into_force(self, result: LoadResult, *, sources: dict[str, bytes], stamps: Stamps) -> Reading:
        digest = bundle_digest(sources, entry=result.file)
        if result.error is not None:
            await self._refuse(result, _for_file(result.error, result.file))
            return Reading(stamps=stamps, digest=digest, is_refused=True)
        try:
            outcome = await self._patiently(
                lambda: dags.sync_file(
                    self._database,
                    self._notifier,
                    in_team(result, team_of(result.file, self._team_folders)),
                    sources=sources,
                    defaults=self._defaults,
                    encrypt=self._encrypt,
                    now=self._clock.now(),
                )
            )
        except (DataRefused, ConstraintViolated, ValueError) as error:
            reason = f"what the file declares cannot be stored: {error}"
            await self._refuse(result, LocatedError(file=result.file, message=reason))
            return Reading(stamps=stamps, digest=digest, is_refused=True)
        if outcome.refused is not None:
            _log.warning(outcome.refused.message, action="file_refused", file=result.file)
        elif outcome.versions:
            _log.info("DAGs have a new version", action="dags_changed", file=result.file, dags=list(outcome.versions))
        return Reading(stamps=stamps, digest=digest, is_refused=outcome.refused is not None, missing=outcome.missing)

    async def _patiently(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Wait while the database is away; what was loaded is not loaded again for that."""
        return await self._database.until_available(work, on_trouble=self._on_trouble)

    async def _refuse(self, result: LoadResult, error: LocatedError) -> None:
        if await self._patiently(lambda: dags.record_import_error(self._database, error, duration=result.duration)):
            _log.warning(
                "a pipeline file does not load",
                action="import_error",
                file=error.file,
                line=error.line,
                error=error.message,
            )


def _for_file(error: LocatedError, file: str) -> LocatedError:
    """The error as that of the pipeline file, also if it lies in a module that the file loads."""
    if error.file == file:
        return error
    place = error.file if error.line is None else f"{error.file}, line {error.line}"
    return msgspec.structs.replace(error, file=file, line=None, message=f"{place}: {error.message}")


def _is_stable(before: Stamps, after: Stamps, *, started: float) -> bool:
    """Whether the files read after the load are those that were there when it began."""
    return all(_was_there(path, stamp, before=before, started=started) for path, stamp in after.items())


def _was_there(path: str, stamp: Stamp | None, *, before: Stamps, started: float) -> bool:
    if stamp is None:
        return False
    if path in before:
        return before[path] == stamp
    return stamp.changed < started - _COARSENESS
