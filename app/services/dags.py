"""DAGs as pipeline files declare them: one transaction a file, and only differences are written.

A DAG that is no longer declared is *missing* for a grace period and unchanged in every other respect; then it is
retired: no runs, no references, no watchers, its waiting demand dropped. Coming back within the grace period leaves no
trace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from app.domain.specs import LoadResult, LocatedError
from app.kernel.clock import utc_now
from app.kernel.crash_points import CrashPoint, reach
from app.kernel.errors import NotFound
from app.services import demand
from app.services.assets import Encrypt, apply_assets, lock_affected, plan_assets, refresh_consumed
from app.services.bundles import store_bundle
from app.services.declarations import (
    DagDefaults,
    FileSync,
    SyncOutcome,
    pass_over_missed,
    second_declaration,
    what_remains,
)
from app.store import assets, dag_files, dags, import_errors
from app.store.database import Connection, Database
from app.store.wakeups import Notifier

__all__ = [
    "DagDefaults",
    "KnownFiles",
    "SyncOutcome",
    "known_files",
    "mark_missing",
    "mark_present",
    "record_import_error",
    "retire_missing",
    "set_paused",
    "sync_file",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFiles:
    """Paths of pipeline files that the database knows, in order."""

    present: tuple[str, ...]
    missing: tuple[str, ...]


async def sync_file(
    database: Database,
    notifier: Notifier,
    result: LoadResult,
    *,
    sources: Mapping[str, bytes],
    defaults: DagDefaults,
    encrypt: Encrypt,
    now: datetime,
) -> SyncOutcome:
    """Bring the database to what a pipeline file declares. ``result`` is a good load of exactly ``sources``.

    A DAG that another file declares makes the whole file refused: that is recorded as its import error, and everything
    stays as it was. ``encrypt`` hides the arguments of triggers.
    """

    async def work(connection: Connection) -> tuple[SyncOutcome, set[str]]:
        await dags.lock_declarations(connection)
        declared = [spec.dag_id for spec in result.dags]
        stored = {row.dag_id: row for row in await dags.read_dags(connection, declared, file_path=result.file)}
        refused = second_declaration(result, stored)
        if refused is not None:
            await import_errors.upsert_error(connection, refused)
            await dag_files.upsert_file(connection, result.file, bundle_digest=None, duration=result.duration)
            return SyncOutcome(refused=refused), set()
        digest = await store_bundle(connection, sources, entry=result.file)
        await dag_files.upsert_file(connection, result.file, bundle_digest=digest, duration=result.duration)
        await import_errors.delete_error(connection, result.file)
        sync = FileSync(connection, result=result, digest=digest, stored=stored, defaults=defaults, now=now)
        outcome = await sync.run(encrypt)
        reach(CrashPoint.SYNC_UNCOMMITTED)
        return outcome, sync.topics

    outcome, topics = await database.retrying(work)
    reach(CrashPoint.SYNCED)
    if topics:
        notifier.poke(*topics)
    return outcome


async def record_import_error(database: Database, error: LocatedError, *, duration: float = 0.0) -> bool:
    """Record why a file did not load; whether that is news. Its DAGs keep their last good version and their demand."""
    shown = msgspec.structs.replace(
        error,
        message=_storable(error.message),
        traceback=_storable(error.traceback) if error.traceback is not None else None,
    )

    async def work(connection: Connection) -> bool:
        await dags.lock_declarations(connection)
        if await dag_files.is_missing(connection, error.file):
            await dags.clear_missing(connection, await dags.read_of_files(connection, [error.file]))
        await dag_files.upsert_file(connection, error.file, bundle_digest=None, duration=duration)
        return await import_errors.upsert_error(connection, shown)

    return await database.retrying(work)


async def known_files(database: Database) -> KnownFiles:
    """The pipeline files that were there when last looked at, and those in their grace period."""
    async with database.transaction() as connection:
        found = await dag_files.read_paths(connection)
    return KnownFiles(
        present=tuple(path for path, missing in found if not missing),
        missing=tuple(path for path, missing in found if missing),
    )


async def mark_missing(database: Database, paths: Collection[str]) -> tuple[str, ...]:
    """The files vanished: the grace period of their DAGs begins. The DAGs concerned."""

    async def work(connection: Connection) -> tuple[str, ...]:
        await dags.lock_declarations(connection)
        gone = await dag_files.mark_missing(connection, paths)
        for path in gone:
            await import_errors.delete_error(connection, path)
        return tuple(await dags.mark_missing(connection, await dags.read_of_files(connection, gone)))

    return await database.retrying(work)


async def mark_present(database: Database, paths: Collection[str]) -> None:
    """Missing files are there again: the grace period of their DAGs ends until they were read."""

    async def work(connection: Connection) -> None:
        await dags.lock_declarations(connection)
        await dag_files.mark_present(connection, paths)
        await dags.clear_missing(connection, await dags.read_of_files(connection, paths))

    await database.retrying(work)


async def retire_missing(
    database: Database, notifier: Notifier, *, grace: timedelta, encrypt: Encrypt
) -> tuple[str, ...]:
    """Retire the DAGs whose grace period is over, and forget files without DAGs. The DAGs retired."""

    async def work(connection: Connection) -> tuple[str, ...]:
        await dags.lock_declarations(connection)
        overdue: dict[str, list[str]] = {}
        for path, dag_id in await dags.read_overdue(connection, grace=grace):
            overdue.setdefault(path, []).append(dag_id)
        # One file a transaction: the order of locks is then the same as everywhere.
        for path, dag_ids in list(overdue.items())[:1]:
            await _retire(connection, path, dag_ids=dag_ids, encrypt=encrypt)
            return tuple(dag_ids)
        await dag_files.delete_retired(connection)
        return ()

    retired: list[str] = []
    while found := await database.retrying(work):
        retired.extend(found)
    if retired:
        notifier.poke("dags", "triggers", "demand")
    return tuple(retired)


async def _retire(connection: Connection, path: str, *, dag_ids: Collection[str], encrypt: Encrypt) -> None:
    plan = await plan_assets(connection, await what_remains(connection, path, without=dag_ids, ended=dag_ids))
    await dags.lock_dags(connection, dag_ids)
    await dags.retire(connection, dag_ids)
    await lock_affected(connection, plan)
    await apply_assets(connection, plan, encrypt=encrypt)
    for dag_id in sorted(dag_ids):
        await demand.drop_unscheduled(connection, dag_id, [])


async def set_paused(database: Database, notifier: Notifier, *, dag_id: str, paused: bool) -> bool:
    """Pause or unpause at once, with the watchers that only this DAG consumes; whether that was a change.

    Raises :class:`NotFound`.
    """

    async def work(connection: Connection) -> bool:
        await dags.lock_declarations(connection)
        if not await dags.is_known(connection, dag_id):
            raise NotFound(what=f"DAG {dag_id}")
        scheduled = await assets.read_scheduled_assets(connection, dag_id)
        if not await dags.set_paused(connection, dag_id, paused=paused):
            return False
        await refresh_consumed(connection, scheduled)
        if not paused:
            await pass_over_missed(connection, dag_id, now=utc_now())
        return True

    changed = await database.retrying(work)
    if changed:
        notifier.poke("dags", "triggers", "demand", "tasks", "runs")
    return changed


def _storable(text: str) -> str:
    """Text columns hold neither NUL nor lone surrogates."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
