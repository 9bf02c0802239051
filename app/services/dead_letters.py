"""Dead letters that are made events after all, or deleted.

Requeueing is three steps, because filters and schemas may be slow and run in no transaction and on no loop of ours:
:func:`read_held` says what is to be checked, the caller applies the watchers (``app.processes.requeueing``), and
:func:`store_requeued` makes the events if the watchers are still those. Its locks are taken in the order of whoever
stores events, the letter last: of two requests for one letter the second finds it requeued and is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.domain.deliveries import Refusal
from app.domain.states import DeadLetterState
from app.kernel.errors import AlreadyExists, InvalidRequest, NotFound
from app.services.recording import body_of, event_of, message_identity, record
from app.services.triggers import WatcherFilter, watchers_of_trigger
from app.store import dead_letters as statements
from app.store import events as event_statements
from app.store.database import Database, HotConnection
from app.store.dead_letters import DeadLetterRow, HeldRow
from app.store.events import IdentityRow, WatcherRow
from app.store.wakeups import Notifier

#: Codes of refusals by one asset; all others are of every asset of the trigger.
OF_ONE_ASSET = frozenset({"filter", "schema"})


class LetterUnknown(NotFound):
    """There is no dead letter {id}."""


class LetterRequeued(AlreadyExists):
    """Dead letter {id} was requeued at {at}; its events: {events}."""


class NotWhole(AlreadyExists):
    """Only {kept} of {size} bytes of the message of dead letter {id} were kept (setting dead_letter_raw_limit), so it
    cannot be requeued as it is: give a payload."""


class NoMessage(AlreadyExists):
    """Dead letter {id} is about a position in the source, not about a message: there is nothing to requeue."""


class TriggerGone(AlreadyExists):
    """The trigger of dead letter {id} is gone: no watcher is declared with it any more. Post the event to its asset
    instead, and delete the letter."""


class AssetGone(AlreadyExists):
    """The asset of dead letter {id} is gone, inactive, or not watched by its trigger any more. Declare it again, or
    delete the letter."""


class StillRefused(InvalidRequest):
    """Dead letter {id} makes no event: {reason}. It stays."""


class WatchersChanged(Exception):
    """The watchers are not those that were checked: check again."""


class HeldLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A letter that may be requeued, and the watchers that decide about it."""

    row: HeldRow
    watchers: tuple[WatcherFilter, ...]


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """What requeueing made. ``event_ids`` are also events that the same message had made already; ``dead_letters`` are
    new letters of assets that refuse the payload while others take it."""

    id: int
    event_ids: tuple[int, ...]
    created: int
    dead_letters: tuple[int, ...] = ()


async def read_held(database: Database, letter_id: int, *, has_payload: bool) -> HeldLetter:
    """What requeueing the letter is about; ``has_payload`` says that a payload is given for it.

    Raises :class:`LetterUnknown`, :class:`LetterRequeued`, :class:`NotWhole`, :class:`NoMessage`,
    :class:`TriggerGone`, :class:`AssetGone`, :class:`StillRefused`.
    """
    async with database.hot() as hot:
        row = await _held(hot, letter_id)
        if row.code == "position":
            raise NoMessage(id=letter_id)
        if row.payload is None and not has_payload:
            if row.raw is not None and (row.raw_size or 0) > len(row.raw):
                raise NotWhole(id=letter_id, kept=len(row.raw), size=row.raw_size)
            raise StillRefused(id=letter_id, reason=f"{row.reason} ({row.code}), so it needs another payload")
        return HeldLetter(row=row, watchers=await _watchers(hot, row))


async def store_requeued(
    database: Database,
    notifier: Notifier,
    letter: HeldLetter,
    *,
    payload: str,
    passing: Sequence[int],
    refusals: Sequence[Refusal],
) -> Requeued:
    """Make the events, in one transaction with the letter's transition. ``passing`` are watchers that take ``payload``.

    Raises :class:`WatchersChanged`, and :class:`LetterUnknown` or :class:`LetterRequeued` if somebody was quicker;
    :class:`app.store.errors.DataRefused` if the database refuses the payload.
    """

    async def work(hot: HotConnection) -> Requeued:
        if await _watchers(hot, letter.row) != letter.watchers:
            raise WatchersChanged
        return await _Requeue(hot=hot, row=letter.row, payload=payload).store(passing, refusals)

    done = await database.retrying_hot(work)
    if done.created:
        notifier.poke("demand")
    return done


async def delete(database: Database, letter_ids: Sequence[int]) -> set[int]:
    """Delete letters, whatever state they are in; those that were there."""

    async def work(hot: HotConnection) -> set[int]:
        return await statements.delete_letters(hot, letter_ids=sorted(set(letter_ids)))

    return await database.retrying_hot(work)


async def _held(hot: HotConnection, letter_id: int) -> HeldRow:
    row = await statements.read_letter(hot, letter_id)
    if row is None:
        raise LetterUnknown(id=letter_id)
    if row.state != DeadLetterState.HELD:
        events = ", ".join(map(str, row.event_ids or ())) or "none"
        at = "" if row.requeued_at is None else row.requeued_at.isoformat(timespec="seconds")
        raise LetterRequeued(id=letter_id, at=at, events=events)
    return row


async def _watchers(hot: HotConnection, row: HeldRow) -> tuple[WatcherFilter, ...]:
    """The live watchers that decide: those of the letter's asset, or all of its trigger."""
    if row.trigger_id is None or not row.has_trigger:
        raise TriggerGone(id=row.id)
    found = await watchers_of_trigger(hot, row.trigger_id)
    if row.asset_id is not None or row.code in OF_ONE_ASSET:
        found = tuple(each for each in found if each.asset_id == row.asset_id)
    if not found:
        raise AssetGone(id=row.id)
    return found


class _Requeue:
    """One attempt to requeue a letter on a connection."""

    def __init__(self, *, hot: HotConnection, row: HeldRow, payload: str) -> None:
        self._hot = hot
        self._row = row
        self._payload = payload

    async def store(self, passing: Sequence[int], refusals: Sequence[Refusal]) -> Requeued:
        row = self._row
        watchers = await self._assets(passing)
        if not watchers:
            raise WatchersChanged
        event_ids, created = await self._events(list(watchers.values()))
        refusing = {
            watcher.asset_id: refusal
            for refusal in refusals
            for watcher in (await self._assets(refusal.watchers)).values()
            if watcher.asset_id not in watchers
        }
        letters = await statements.insert_dead_letters(
            self._hot, rows=[self._letter(asset_id, refusal) for asset_id, refusal in refusing.items()]
        )
        if not await statements.mark_requeued(self._hot, letter_id=row.id, event_ids=event_ids):
            await _held(self._hot, row.id)
            raise LetterUnknown(id=row.id)
        return Requeued(
            id=row.id, event_ids=tuple(event_ids), created=created, dead_letters=tuple(each[0] for each in letters)
        )

    async def _assets(self, watcher_ids: Sequence[int]) -> dict[int, WatcherRow]:
        """A watcher of each asset, once however many lead to it."""
        found: dict[int, WatcherRow] = {}
        for watcher in sorted(
            await event_statements.watchers_of(self._hot, watcher_ids=watcher_ids), key=lambda each: each.id
        ):
            found.setdefault(watcher.asset_id, watcher)
        return found

    async def _events(self, watchers: Sequence[WatcherRow]) -> tuple[list[int], int]:
        """The events of these assets, made now or by the same message before; and how many are new."""
        row = self._row
        event_ids, (body_id,) = await event_statements.reserve_ids(self._hot, events=len(watchers), bodies=1)
        known: dict[int, int] = {}
        if row.key is not None:
            identity = message_identity(row.source, row.key)
            wanted = [
                IdentityRow(asset_id=watcher.asset_id, identity=identity, event_id=event_id)
                for watcher, event_id in zip(watchers, event_ids, strict=True)
            ]
            new = await event_statements.insert_identities(self._hot, rows=wanted)
            old = [(each.asset_id, identity) for each in wanted if (each.asset_id, identity) not in new]
            found = await event_statements.events_of_identities(self._hot, keys=old) if old else {}
            known = {asset_id: event_id for (asset_id, _), event_id in found.items()}
        events = [
            event_of(watcher, event_id=event_id, body_id=body_id, source=row.source, key=row.key)
            for watcher, event_id in zip(watchers, event_ids, strict=True)
            if watcher.asset_id not in known
        ]
        await record(self._hot, bodies={body_id: body_of(self._payload)}, events=events)
        made = [event.id for event in events]
        await statements.name_origin(self._hot, letter_id=row.id, event_ids=made)
        return sorted([*made, *known.values()]), len(made)

    def _letter(self, asset_id: int, refusal: Refusal) -> DeadLetterRow:
        row = self._row
        return DeadLetterRow(
            trigger_id=row.trigger_id,
            asset_id=asset_id,
            source=row.source,
            key=row.key,
            identity=None if row.key is None else message_identity(row.trigger_id, row.source, row.key, asset_id),
            code=refusal.code,
            reason=refusal.reason,
            raw=row.raw,
            raw_size=row.raw_size,
            payload=self._payload,
        )
