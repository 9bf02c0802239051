"""One attempt to store some deliveries: what is committed together, statement after statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.deliveries import Delivery, DeliveryItem, Refusal, Resolution, Verdict
from app.services.recording import body_of, event_of, message_identity, record
from app.store import dead_letters, positions, triggers
from app.store import events as statements
from app.store.database import HotConnection
from app.store.dead_letters import DeadLetterRow
from app.store.events import IdentityRow, WatcherRow
from app.store.positions import PositionRow
from app.store.triggers import Tally


class Fenced(Exception):
    """Some triggers are no longer ours: roll back. ``held`` are those that still are, as (trigger id, epoch)."""

    def __init__(self, held: set[tuple[int, int]]) -> None:
        self.held = held


@dataclass(slots=True, kw_only=True)
class Counts:
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0


@dataclass(slots=True, kw_only=True)
class Batch:
    """One attempt to store some deliveries on a connection."""

    owner_id: int
    deliveries: Sequence[Delivery]
    raw_limit: int
    counts: list[Counts] = field(default_factory=list)
    watchers: dict[int, WatcherRow] = field(default_factory=dict)

    async def store(self, hot: HotConnection) -> list[Resolution]:
        self.counts = [Counts() for _ in self.deliveries]
        wanted = sorted({id_ for each in self.deliveries for item in each.items for id_ in _touched(item)})
        if wanted:
            self.watchers = {row.id: row for row in await statements.watchers_of(hot, watcher_ids=wanted)}
        await self._store_events(hot)
        await self._store_dead_letters(hot)
        await self._store_positions(hot)
        await self._check_owner(hot)
        return [
            Resolution(verdict=Verdict.STORED, events=n.events, duplicates=n.duplicates, dead_letters=n.dead_letters)
            for n in self.counts
        ]

    def _targets(self, item: DeliveryItem, trigger_id: int) -> dict[int, WatcherRow]:
        """Assets that the item makes an event of, each once however many watchers lead to it."""
        targets: dict[int, WatcherRow] = {}
        for watcher_id in item.watchers:
            row = self.watchers.get(watcher_id)
            if row is not None and row.trigger_id == trigger_id:
                targets.setdefault(row.asset_id, row)
        return targets

    async def _store_events(self, hot: HotConnection) -> None:
        candidates: list[tuple[int, int, WatcherRow]] = []
        items: list[DeliveryItem] = []
        for place, delivery in enumerate(self.deliveries):
            for item in delivery.items:
                if item.payload is not None and item.watchers:
                    targets = self._targets(item, delivery.trigger_id)
                    candidates += [(place, len(items), row) for row in targets.values()]
                    items.append(item)
        if not candidates:
            return
        event_ids, body_ids = await statements.reserve_ids(hot, events=len(candidates), bodies=len(items))
        new = await self._new_only(hot, candidates, items=items, event_ids=event_ids)
        bodies = {
            body_ids[index]: body_of(item.payload) for index, item in enumerate(items) if item.payload is not None
        }
        events = [
            event_of(row, event_id=event_id, body_id=body_ids[index], source=items[index].source, key=items[index].key)
            for event_id, (_, index, row) in zip(event_ids, candidates, strict=True)
            if event_id in new
        ]
        await record(hot, bodies=bodies, events=events)
        for event_id, (place, _, _) in zip(event_ids, candidates, strict=True):
            if event_id in new:
                self.counts[place].events += 1
            else:
                self.counts[place].duplicates += 1

    async def _new_only(
        self,
        hot: HotConnection,
        candidates: Sequence[tuple[int, int, WatcherRow]],
        *,
        items: Sequence[DeliveryItem],
        event_ids: Sequence[int],
    ) -> set[int]:
        """The event ids whose message has not made an event of that asset before, here or in another transaction."""
        identities = [None if item.key is None else message_identity(item.source, item.key) for item in items]
        first: dict[tuple[int, bytes], int] = {}
        new: set[int] = set()
        for event_id, (_, index, row) in zip(event_ids, candidates, strict=True):
            identity = identities[index]
            if identity is None:
                new.add(event_id)
            else:
                first.setdefault((row.asset_id, identity), event_id)
        if first:
            rows = [IdentityRow(asset_id=key[0], identity=key[1], event_id=event_id) for key, event_id in first.items()]
            inserted = await statements.insert_identities(hot, rows=rows)
            new.update(first[key] for key in inserted)
        return new

    async def _store_dead_letters(self, hot: HotConnection) -> None:
        rows: list[DeadLetterRow] = []
        places: dict[int, list[int]] = {}
        for place, delivery in enumerate(self.deliveries):
            for item in delivery.items:
                letters = self._letters(item, delivery.trigger_id)
                rows += letters
                places.setdefault(delivery.trigger_id, []).extend([place] * len(letters))
        if not rows:
            return
        for _, trigger_id in await dead_letters.insert_dead_letters(hot, rows=rows):
            # A trigger has one delivery in hand at a time, so counting per trigger is counting per delivery.
            self.counts[places[trigger_id].pop(0)].dead_letters += 1

    def _letters(self, item: DeliveryItem, trigger_id: int) -> list[DeadLetterRow]:
        """One for each asset that refuses the item and gets it by no other watcher either."""
        letters: list[DeadLetterRow] = []
        settled = set(self._targets(item, trigger_id))
        for refusal in item.refusals:
            if not refusal.watchers:
                letters.append(self._letter(item, trigger_id, refusal=refusal))
            for watcher_id in refusal.watchers:
                watcher = self.watchers.get(watcher_id)
                if watcher is None or watcher.trigger_id != trigger_id or watcher.asset_id in settled:
                    continue
                settled.add(watcher.asset_id)
                letters.append(self._letter(item, trigger_id, refusal=refusal, asset_id=watcher.asset_id))
        return letters

    def _letter(
        self, item: DeliveryItem, trigger_id: int, *, refusal: Refusal, asset_id: int | None = None
    ) -> DeadLetterRow:
        identity = None if item.key is None else message_identity(trigger_id, item.source, item.key, asset_id)
        raw = None if item.raw is None else item.raw[: self.raw_limit]
        return DeadLetterRow(
            trigger_id=trigger_id,
            asset_id=asset_id,
            source=_storable(item.source),
            key=_storable(item.key),
            identity=identity,
            code=refusal.code[:32],
            reason=_storable(refusal.reason) or "",
            raw=raw,
            raw_size=item.raw_size if item.raw_size is not None or item.raw is None else len(item.raw),
            payload=item.payload,
        )

    async def _store_positions(self, hot: HotConnection) -> None:
        latest = {
            (delivery.trigger_id, each.source, each.lane): each.position
            for delivery in self.deliveries
            for each in delivery.positions
        }
        if latest:
            rows = [PositionRow(trigger_id=k[0], source=k[1], lane=k[2], position=v) for k, v in latest.items()]
            await positions.upsert_positions(hot, rows=rows)

    async def _check_owner(self, hot: HotConnection) -> None:
        tallies: dict[tuple[int, int], Tally] = {}
        for delivery, counts in zip(self.deliveries, self.counts, strict=True):
            at = (delivery.trigger_id, delivery.epoch)
            sofar = tallies.get(at, Tally(trigger_id=at[0], epoch=at[1]))
            tallies[at] = Tally(
                trigger_id=at[0],
                epoch=at[1],
                events=sofar.events + counts.events,
                duplicates=sofar.duplicates + counts.duplicates,
                refused=sofar.refused + counts.dead_letters,
            )
        held = await triggers.add_tallies(hot, owner_id=self.owner_id, tallies=list(tallies.values()))
        if len(held) < len(tallies):
            raise Fenced(held)


def _touched(item: DeliveryItem) -> list[int]:
    return [*item.watchers, *(id_ for each in item.refusals for id_ in each.watchers)]


def _storable(text: str | None) -> str | None:
    """Text that a text column can hold: NUL and lone surrogates are spelled out."""
    if text is None:
        return None
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
