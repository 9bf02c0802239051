"""Triggers as their owner handles them: claims, transitions, release. Each write repeats owner and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.domain.states import TriggerStatus
from app.kernel.crash_points import CrashPoint, reach
from app.services.secrets import Keys, NotDecryptable
from app.store import positions as position_statements
from app.store import triggers as statements
from app.store.database import Database, HotConnection
from app.store.triggers import Digest, OwnedRow
from app.store.wakeups import Notifier


class WatcherFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher of a trigger: its asset, what the payload must match (JMESPath) and obey (JSON Schema), None for
    everything."""

    id: int
    asset_id: int
    when: str | None = None
    schema: str | None = None


class ClaimedTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger in the hands of its new owner. ``kwargs`` is canonical text, None if it cannot be decrypted."""

    id: int
    epoch: int
    classpath: str
    kwargs: str | None
    identity: str
    kind: str
    bundle_digest: str | None
    bundle_entry: str | None
    #: It blocked or killed a runner before, here or elsewhere: it gets one of its own.
    runs_alone: bool = False
    strikes: int = 0
    queue: str | None = None
    watchers: tuple[WatcherFilter, ...] = ()
    #: JSON text by source and lane.
    positions: dict[str, dict[str, str]] = {}


async def claim(
    database: Database,
    keys: Keys,
    *,
    owner_id: int,
    limit: int,
    queues: Sequence[str] | None = None,
    team_name: str | None = None,
) -> list[ClaimedTrigger]:
    """Take up to ``limit`` unowned, wanted triggers of these queues and this team, oldest first."""

    async def work(hot: HotConnection) -> list[ClaimedTrigger]:
        rows = await statements.claim_triggers(hot, owner_id=owner_id, limit=limit, queues=queues, team_name=team_name)
        ids = [row.id for row in rows]
        watchers, places = await _links(hot, ids)
        if rows:
            reach(CrashPoint.CLAIM_UNCOMMITTED)
        return [
            ClaimedTrigger(
                id=row.id,
                epoch=row.epoch,
                classpath=row.classpath,
                kwargs=_decrypted(keys, row.kwargs),
                identity=row.identity,
                kind=row.kind,
                bundle_digest=row.bundle_digest,
                bundle_entry=row.bundle_entry,
                runs_alone=row.runs_alone,
                strikes=row.strikes,
                queue=row.queue,
                watchers=watchers.get(row.id, ()),
                positions=places.get(row.id, {}),
            )
            for row in rows
        ]

    claimed = await database.retrying_hot(work)
    if claimed:
        reach(CrashPoint.CLAIMED)
    return claimed


async def digests(database: Database, owner_id: int) -> dict[int, Digest]:
    """By bucket of ids, what an owner's rows sum up to: see :func:`app.store.triggers.digests_of`."""
    async with database.glance() as hot:
        return await statements.digests_of(hot, owner_id=owner_id)


async def owned(
    database: Database, owner_id: int, *, buckets: Sequence[int]
) -> tuple[dict[int, OwnedRow], dict[int, tuple[WatcherFilter, ...]]]:
    """The triggers of an owner in these buckets as their rows are now, and their watchers."""
    if not buckets:
        return {}, {}
    async with database.hot() as hot:
        rows = await statements.owned_triggers(hot, owner_id=owner_id, buckets=buckets)
        filters = await statements.filters_of(hot, trigger_ids=[row.id for row in rows])
    watchers: dict[int, list[WatcherFilter]] = {}
    for each in filters:
        watchers.setdefault(each.trigger_id, []).append(_filter(each))
    return {row.id: row for row in rows}, {id_: tuple(found) for id_, found in watchers.items()}


async def watchers_of_trigger(hot: HotConnection, trigger_id: int) -> tuple[WatcherFilter, ...]:
    """The watchers on active assets of one trigger."""
    return tuple(_filter(each) for each in await statements.filters_of(hot, trigger_ids=[trigger_id]))


async def mark_running(
    database: Database, *, owner_id: int, triggers: Sequence[tuple[int, int]]
) -> dict[int, dict[str, dict[str, str]]]:
    """The ``(id, epoch)`` triggers start again; positions as of now of those that are still ours."""

    async def work(hot: HotConnection) -> dict[int, dict[str, dict[str, str]]]:
        ours = await statements.start_again(hot, owner_id=owner_id, triggers=triggers)
        _, places = await _links(hot, sorted(ours))
        return {id_: places.get(id_, {}) for id_ in ours}

    return await database.retrying_hot(work)


async def record_failure(
    database: Database,
    *,
    owner_id: int,
    trigger_id: int,
    epoch: int,
    error: str,
    next_attempt_at: datetime,
    quarantined: bool = False,
) -> bool:
    """The trigger failed (``error`` is already masked) and starts again at that moment. False: no longer ours."""
    status = TriggerStatus.QUARANTINED if quarantined else TriggerStatus.BACKING_OFF

    async def work(hot: HotConnection) -> bool:
        return await statements.fail_trigger(
            hot,
            owner_id=owner_id,
            trigger_id=trigger_id,
            epoch=epoch,
            status=status.value,
            error=_storable(error),
            next_attempt_at=next_attempt_at,
        )

    return await database.retrying_hot(work)


async def record_strikes(database: Database, *, owner_id: int, trigger_id: int, epoch: int, strikes: int) -> bool:
    """So many runners were killed while the trigger executed; its next owner goes on counting. False: not ours."""
    return await database.retrying_hot(
        lambda hot: statements.note_strikes(hot, owner_id=owner_id, trigger_id=trigger_id, epoch=epoch, strikes=strikes)
    )


async def record_status(
    database: Database, *, owner_id: int, trigger_id: int, epoch: int, error: str | None, failures: int
) -> bool:
    """The trigger's source fails (``failures`` times in a row) or, with ``error`` None, answers again."""

    async def work(hot: HotConnection) -> bool:
        return await statements.note_source(
            hot,
            owner_id=owner_id,
            trigger_id=trigger_id,
            epoch=epoch,
            error=None if error is None else _storable(error),
            failures=failures,
        )

    return await database.retrying_hot(work)


async def release(
    database: Database, notifier: Notifier, *, owner_id: int, triggers: Sequence[tuple[int, int]]
) -> set[int]:
    """Give up the ``(id, epoch)`` triggers, so that whoever has room may take those still wanted."""
    if not triggers:
        return set()

    async def work(hot: HotConnection) -> set[int]:
        given_up = await statements.release_triggers(hot, owner_id=owner_id, triggers=triggers)
        reach(CrashPoint.RELEASE_UNCOMMITTED)
        return given_up

    released = await database.retrying_hot(work)
    reach(CrashPoint.RELEASED)
    if released:
        notifier.poke("triggers")
    return released


async def release_all(database: Database, notifier: Notifier, *, owner_id: int) -> list[int]:
    """Give up everything: a clean stop."""

    async def work(hot: HotConnection) -> list[int]:
        return await statements.take_from(hot, owner_ids=[owner_id], reason="released by its owner")

    released = await database.retrying_hot(work)
    if released:
        notifier.poke("triggers")
    return released


async def installed_classes(database: Database) -> frozenset[str]:
    """Import paths of the installed classes of all wanted triggers, whoever runs them."""
    async with database.glance() as hot:
        return frozenset(await statements.installed_classes(hot))


async def saturated(database: Database, *, trigger_ids: Sequence[int], limit: int) -> set[int]:
    """Triggers that must wait, because a consumer has ``limit`` or more events waiting for a run."""
    if not trigger_ids:
        return set()
    async with database.glance() as hot:
        return await statements.saturated_triggers(hot, trigger_ids=trigger_ids, limit=limit)


async def _links(
    hot: HotConnection, trigger_ids: Sequence[int]
) -> tuple[dict[int, tuple[WatcherFilter, ...]], dict[int, dict[str, dict[str, str]]]]:
    if not trigger_ids:
        return {}, {}
    watchers: dict[int, list[WatcherFilter]] = {}
    for each in await statements.filters_of(hot, trigger_ids=trigger_ids):
        watchers.setdefault(each.trigger_id, []).append(_filter(each))
    places: dict[int, dict[str, dict[str, str]]] = {}
    for row in await position_statements.positions_of(hot, trigger_ids=trigger_ids):
        places.setdefault(row.trigger_id, {}).setdefault(row.source, {})[row.lane] = row.position
    return {id_: tuple(found) for id_, found in watchers.items()}, places


def _filter(row: statements.FilterRow) -> WatcherFilter:
    return WatcherFilter(id=row.id, asset_id=row.asset_id, when=row.when, schema=row.schema)


def _decrypted(keys: Keys, token: bytes) -> str | None:
    try:
        return keys.decrypt(token)
    except NotDecryptable:
        return None


def _storable(text: str) -> str:
    """An error as a text column can hold it, bounded."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")[:10_000]
