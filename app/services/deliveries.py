"""Storing what triggers deliver: one transaction for everything that waits, of all triggers.

All that belongs together is committed together: identities, events, demand, positions, dead letters and counters. The
last statement checks owner and epoch of each trigger and locks its row; if one is fenced the transaction is rolled back
and done again without it. A value that the database refuses is found by trying halves and becomes a dead letter; the
rest is then stored as it came, still in one transaction and in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.domain.deliveries import Delivery, DeliveryItem, Refusal, Resolution, Verdict
from app.kernel.crash_points import CrashPoint, reach
from app.services.delivery_batch import Batch, Fenced
from app.store.database import Database, HotConnection
from app.store.errors import ConstraintViolated, DataRefused
from app.store.wakeups import Notifier

FENCED = Resolution(verdict=Verdict.FENCED)
#: An item or a position of a delivery: (place of the delivery, place within it, positions after items).
_Unit = tuple[int, int]


class _Undo(Exception):
    """A trial succeeded: roll it back."""


async def store_batch(
    database: Database, notifier: Notifier, owner_id: int, *, deliveries: Sequence[Delivery], raw_limit: int = 65_536
) -> list[Resolution]:
    """Store the deliveries of ``owner_id`` in order; the answers stand in the same order.

    ``raw_limit`` is how much of a refused message is kept, in bytes. Raises :class:`DatabaseUnavailable` while the
    server is away: nothing is known to be stored then, and trying the same deliveries again is right.
    """
    answers = await _store_all(database, owner_id, list(deliveries), raw_limit=raw_limit)
    if any(answer.events for answer in answers):
        notifier.poke("demand")
    return answers


async def _store_all(
    database: Database, owner_id: int, deliveries: list[Delivery], *, raw_limit: int
) -> list[Resolution]:
    pending = dict(enumerate(deliveries))
    answers: dict[int, Resolution] = {}
    doubted = False
    while pending:
        batch = list(pending.values())
        try:
            outcome = await _store(database, owner_id, deliveries=batch, raw_limit=raw_limit)
        except Fenced as fenced:
            lost = [n for n, each in pending.items() if (each.trigger_id, each.epoch) not in fenced.held]
            answers.update(dict.fromkeys(lost, FENCED))
            pending = {n: each for n, each in pending.items() if n not in answers}
        except (DataRefused, ConstraintViolated) as refused:
            if isinstance(refused, ConstraintViolated) and not doubted:
                doubted = True  # An asset may have been deleted while its event was stored: what is there now decides.
                continue
            repaired = await _isolate(database, owner_id, deliveries=batch, raw_limit=raw_limit)
            if repaired == batch:
                outcome = await _store_apart(database, owner_id, batch, refused=refused, raw_limit=raw_limit)
                answers.update(zip(pending, outcome, strict=True))
                break
            pending = dict(zip(pending, repaired, strict=True))
        else:
            answers.update(zip(pending, outcome, strict=True))
            break
    return [answers[n] for n in range(len(deliveries))]


async def _store_apart(
    database: Database, owner_id: int, deliveries: list[Delivery], *, refused: Exception, raw_limit: int
) -> list[Resolution]:
    """Refused together though no part is to blame: store each delivery in a transaction of its own."""
    if len(deliveries) == 1:
        raise refused
    return [(await _store_all(database, owner_id, [delivery], raw_limit=raw_limit))[0] for delivery in deliveries]


async def _store(
    database: Database, owner_id: int, *, deliveries: Sequence[Delivery], raw_limit: int
) -> list[Resolution]:
    async def work(hot: HotConnection) -> list[Resolution]:
        resolutions = await Batch(owner_id=owner_id, deliveries=deliveries, raw_limit=raw_limit).store(hot)
        reach(CrashPoint.STORE_UNCOMMITTED)
        return resolutions

    return await database.retrying_hot(work)


async def _isolate(
    database: Database, owner_id: int, *, deliveries: Sequence[Delivery], raw_limit: int
) -> list[Delivery]:
    """The same deliveries with each item that the database refuses turned into a dead letter of code ``store``."""
    units = [(n, k) for n, each in enumerate(deliveries) for k in range(len(each.items) + len(each.positions))]
    culprits: dict[_Unit, str] = {}

    async def search(chosen: list[_Unit]) -> None:
        trial = _only(deliveries, set(chosen))
        reason = await _refused(database, owner_id, deliveries=trial, raw_limit=raw_limit)
        if reason is None:
            return
        if len(chosen) == 1:
            culprits[chosen[0]] = reason
            return
        middle = len(chosen) // 2
        await search(chosen[:middle])
        await search(chosen[middle:])

    if units:
        await search(units)
    return [
        _repaired(each, {k: why for (m, k), why in culprits.items() if m == n}) for n, each in enumerate(deliveries)
    ]


async def _refused(database: Database, owner_id: int, *, deliveries: Sequence[Delivery], raw_limit: int) -> str | None:
    """Why the database refuses these, or None if it would store them. Nothing is stored."""

    async def work(hot: HotConnection) -> None:
        await Batch(owner_id=owner_id, deliveries=deliveries, raw_limit=raw_limit).store(hot)
        raise _Undo

    try:
        await database.retrying_hot(work)
    except (_Undo, Fenced):
        return None
    except (DataRefused, ConstraintViolated) as refused:
        return str(refused)
    return None


def _only(deliveries: Sequence[Delivery], chosen: set[_Unit]) -> list[Delivery]:
    kept = []
    for n, each in enumerate(deliveries):
        size = len(each.items)
        items = tuple(item for k, item in enumerate(each.items) if (n, k) in chosen)
        places = tuple(place for k, place in enumerate(each.positions, size) if (n, k) in chosen)
        if items or places:
            kept.append(msgspec.structs.replace(each, items=items, positions=places))
    return kept


def _repaired(delivery: Delivery, culprits: dict[int, str]) -> Delivery:
    size = len(delivery.items)
    items = [_refused_item(item, culprits[k]) if k in culprits else item for k, item in enumerate(delivery.items)]
    places = []
    for k, place in enumerate(delivery.positions, size):
        if k not in culprits:
            places.append(place)
            continue
        why = f"position of {place.source} {place.lane}: {culprits[k]}"
        items.append(DeliveryItem(payload=None, source=place.source, refusals=(Refusal(code="store", reason=why),)))
    return msgspec.structs.replace(delivery, items=tuple(items), positions=tuple(places))


def _refused_item(item: DeliveryItem, reason: str) -> DeliveryItem:
    raw = item.raw if item.raw is not None else (item.payload or "").encode("utf-8", "surrogatepass")
    refusals = (Refusal(code="store", reason=reason),)
    return msgspec.structs.replace(item, payload=None, watchers=(), refusals=refusals, raw=raw)
