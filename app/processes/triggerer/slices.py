"""A delivery that makes very many events, in parts that a transaction each can take.

One message to ten thousand assets is ten thousand events, and a batch of ten messages a hundred thousand: in one
transaction they would hold up all other triggers for many seconds. The parts are stored in order and the trigger is
answered after the last, which carries the positions. A crash in between stores nothing twice: what was yielded comes
again and is recognised by its identity. A delivery with an event that has no identity is therefore never taken apart,
and neither is one message.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from app.domain.deliveries import Delivery, DeliveryItem

#: Events of one transaction past which the next message goes into another.
EVENTS_A_TRANSACTION = 5000


def weight_of(item: DeliveryItem) -> int:
    """How many events it makes at most; what makes none costs little, but something."""
    return max(1, len(item.watchers))


def slices(delivery: Delivery) -> Iterator[Delivery]:
    """The delivery in parts; at least one."""
    total = sum(weight_of(item) for item in delivery.items)
    if total <= EVENTS_A_TRANSACTION or any(item.key is None and item.watchers for item in delivery.items):
        yield delivery
        return
    part: list[DeliveryItem] = []
    weight = 0
    for item in delivery.items:
        if part and weight + weight_of(item) > EVENTS_A_TRANSACTION:
            yield msgspec.structs.replace(delivery, items=tuple(part), positions=())
            part, weight = [], 0
        part.append(item)
        weight += weight_of(item)
    yield msgspec.structs.replace(delivery, items=tuple(part))
