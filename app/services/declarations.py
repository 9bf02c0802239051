"""What one pipeline file declares, written as differences. Used by ``dags``, inside its transactions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from app.domain.reconcile import Reference, assets_of, links_of, references_of, spec_digest, stored_form
from app.domain.schedules import next_due
from app.domain.specs import DagSpec, LoadResult, LocatedError, ScheduleKind
from app.services import demand
from app.services.assets import Declaration, Encrypt, apply_assets, lock_affected, plan_assets
from app.store import assets, dags
from app.store.dags import NewVersion, StoredDag
from app.store.database import Connection

DECLARATION_WARNING = "declaration"
#: Type of the warnings about calls that block in the trigger classes of a file.
BLOCKING_WARNING = "blocking_trigger"


@dataclass(frozen=True, slots=True, kw_only=True)
class DagDefaults:
    """What applies to a DAG that does not say itself."""

    is_paused: bool
    max_active_runs: int
    max_active_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOutcome:
    """What reading a file came to: DAGs with a new version, DAGs that went missing from it, or why it was refused."""

    versions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    refused: LocatedError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _DagChange:
    """A declared DAG beside the stored one. ``spec`` is in its stored form; ``row`` is empty if the row is right."""

    spec: DagSpec
    digest: str
    bundle_digest: str
    stored: StoredDag | None
    row: Mapping[str, object]

    @property
    def is_new(self) -> bool:
        return self.stored is None

    @property
    def needs_version(self) -> bool:
        known = self.stored
        return known is None or (known.spec_digest, known.bundle_digest) != (self.digest, self.bundle_digest)

    @property
    def starts_anew(self) -> bool:
        return self.stored is None or not self.stored.is_active

    @property
    def changes_condition(self) -> bool:
        """Whether waiting demand has to be looked at anew."""
        if self.stored is None:
            return False
        old, new = self.stored.spec.schedule, self.spec.schedule
        return (old.condition, old.batch) != (new.condition, new.batch)

    @property
    def changes_schedule(self) -> bool:
        return self.stored is None or self.starts_anew or _timing(self.stored.spec) != _timing(self.spec)


class FileSync:
    """What one file declares, inside the transaction that brings the database to it."""

    def __init__(
        self,
        connection: Connection,
        *,
        result: LoadResult,
        digest: str,
        stored: Mapping[str, StoredDag],
        defaults: DagDefaults,
        now: datetime,
    ) -> None:
        self._connection = connection
        self._result = result
        self._digest = digest
        self._now = now
        self._changes = [
            _change(spec, stored.get(spec.dag_id), file_path=result.file, bundle_digest=digest, defaults=defaults)
            for spec in result.dags
        ]
        declared = {spec.dag_id for spec in result.dags}
        self._vanished = [row for row in stored.values() if row.dag_id not in declared and row.file_path == result.file]
        self._left = {
            row.file_path for row in stored.values() if row.dag_id in declared and row.file_path != result.file
        }
        self.topics: set[str] = set()

    async def run(self, encrypt: Encrypt) -> SyncOutcome:
        """Write the differences; nothing if there are none."""
        plans = [await plan_assets(self._connection, self._declaration())]
        for path in sorted(self._left):
            taken = {spec.dag_id for spec in self._result.dags}
            plans.append(await plan_assets(self._connection, await what_remains(self._connection, path, without=taken)))
        versions = [change for change in self._changes if change.needs_version]
        rows = [change for change in self._changes if not change.is_new and change.row]
        if versions or rows or not all(plan.is_empty for plan in plans):
            await self._write_dags(versions, rows)
            await lock_affected(self._connection, *plans)
            for plan in plans:
                if await apply_assets(self._connection, plan, encrypt=encrypt):
                    self.topics.add("triggers")
            await self._regroup()
        missing = await dags.mark_missing(self._connection, [row.dag_id for row in self._vanished])
        await self._warn()
        return SyncOutcome(versions=tuple(change.spec.dag_id for change in versions), missing=tuple(missing))

    def _declaration(self) -> Declaration:
        """The watchers of DAGs in their grace period count as declared, in the code version they had."""
        links = links_of(self._result.dags, bundle_digest=self._digest)
        for row in self._vanished:
            for key, link in links_of([row.spec], bundle_digest=row.bundle_digest).items():
                links.setdefault(key, link)
        return Declaration(
            file_path=self._result.file,
            bundle_digest=self._digest,
            assets=assets_of(self._result.dags),
            references={spec.dag_id: references_of(spec) for spec in self._result.dags},
            links=links,
        )

    async def _write_dags(self, versions: list[_DagChange], rows: list[_DagChange]) -> None:
        touched = {change.spec.dag_id for change in (*versions, *rows)}
        await dags.lock_dags(self._connection, touched)
        new = [change.row for change in self._changes if change.is_new]
        if new:
            await dags.insert_dags(self._connection, new)
        if rows:
            await dags.update_dags(self._connection, [change.row for change in rows])
        if versions:
            await dags.append_versions(self._connection, [self._version(change) for change in versions])
            await dags.point_to_newest(self._connection, [change.spec.dag_id for change in versions])
        for change in self._changes:
            if change.changes_schedule:
                await self._plan_next_run(change.spec)
                self.topics.add("demand")
        if touched:
            self.topics.add("dags")

    def _version(self, change: _DagChange) -> NewVersion:
        number = change.stored.version_number + 1 if change.stored is not None else 1
        return NewVersion(
            dag_id=change.spec.dag_id,
            number=number,
            bundle_digest=self._digest,
            spec_digest=change.digest,
            spec=change.spec,
        )

    async def _plan_next_run(self, spec: DagSpec) -> None:
        due = next_due(
            spec.schedule,
            now=self._now,
            last=await dags.read_last_logical_date(self._connection, spec.dag_id),
            start=_moment(spec.start_date),
            end=_moment(spec.end_date),
            catchup=spec.catchup,
        )
        await dags.set_next_run(
            self._connection,
            spec.dag_id,
            next_run_at=due.run_at if due else None,
            logical_date=due.logical_date if due else None,
        )

    async def _regroup(self) -> None:
        """Demand that waits follows the schedule: what left it is dropped, the rest is grouped anew."""
        for change in self._changes:
            if change.changes_condition:
                scheduled = await assets.read_scheduled_assets(self._connection, change.spec.dag_id)
                await demand.drop_unscheduled(self._connection, change.spec.dag_id, scheduled)

    async def _warn(self) -> None:
        declared = [spec.dag_id for spec in self._result.dags]
        said = {DECLARATION_WARNING: self._result.warnings, BLOCKING_WARNING: self._result.blocking_calls}
        for kind, texts in said.items():
            if texts:
                messages = dict.fromkeys(declared, "\n".join(texts))
                await dags.set_warnings(self._connection, messages, warning_type=kind)
            else:
                await dags.delete_warnings(self._connection, declared, warning_type=kind)


async def pass_over_missed(connection: Connection, dag_id: str, *, now: datetime) -> None:
    """A DAG that was paused and does not catch up goes on with the next moment, not with those of the pause."""
    for row in await dags.read_dags(connection, [dag_id]):
        if row.spec.catchup or row.spec.schedule.kind not in {ScheduleKind.CRON, ScheduleKind.DELTA}:
            continue
        due = next_due(
            row.spec.schedule,
            now=now,
            last=await dags.read_last_logical_date(connection, dag_id),
            start=_moment(row.spec.start_date),
            end=_moment(row.spec.end_date),
        )
        await dags.set_next_run(
            connection,
            dag_id,
            next_run_at=due.run_at if due else None,
            logical_date=due.logical_date if due else None,
            missed_before=now,
        )


async def what_remains(
    connection: Connection, path: str, *, without: Collection[str], ended: Collection[str] = ()
) -> Declaration:
    """What a file still declares without some of its DAGs, as far as its last good load says.

    The references of ``ended`` end as well.
    """
    remaining = [row for row in await dags.read_dags(connection, [], file_path=path) if row.dag_id not in without]
    nothing: frozenset[Reference] = frozenset()
    return Declaration(
        file_path=path,
        bundle_digest="",
        assets={},
        references=dict.fromkeys(ended, nothing),
        links={
            key: link
            for row in remaining
            for key, link in links_of([row.spec], bundle_digest=row.bundle_digest).items()
        },
    )


def second_declaration(result: LoadResult, stored: Mapping[str, StoredDag]) -> LocatedError | None:
    """Why the file is refused, if it declares a DAG that belongs to another file which is there."""
    for spec in result.dags:
        row = stored.get(spec.dag_id)
        if row is not None and row.file_path != result.file and row.is_active and not row.is_missing:
            return LocatedError(
                file=result.file,
                line=spec.line,
                message=f"DAG {spec.dag_id!r} is declared in {row.file_path} already; a dag_id belongs to one file. "
                "Rename one of them, or delete the other file",
            )
    return None


def _change(
    spec: DagSpec, stored: StoredDag | None, *, file_path: str, bundle_digest: str, defaults: DagDefaults
) -> _DagChange:
    limits = {
        "max_active_runs": spec.max_active_runs or defaults.max_active_runs,
        "max_active_tasks": spec.max_active_tasks or defaults.max_active_tasks,
    }
    row: dict[str, object] = {"dag_id": spec.dag_id, "file_path": file_path, **limits}
    kept = stored_form(spec)
    if stored is None:
        paused = spec.is_paused_upon_creation
        row["is_paused"] = defaults.is_paused if paused is None else paused
    elif (
        stored.is_active
        and not stored.is_missing
        and stored.file_path == file_path
        and limits == {"max_active_runs": stored.max_active_runs, "max_active_tasks": stored.max_active_tasks}
    ):
        row = {}
    return _DagChange(spec=kept, digest=spec_digest(kept), bundle_digest=bundle_digest, stored=stored, row=row)


def _timing(spec: DagSpec) -> tuple[object, ...]:
    return spec.schedule, spec.start_date, spec.end_date, spec.catchup


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
