"""The one way an event comes to be, whoever made it: bodies, events and demand within the caller's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from app.store import events as statements
from app.store.database import HotConnection
from app.store.events import EventRow, WatcherRow


async def record(hot: HotConnection, *, bodies: Mapping[int, str], events: Sequence[EventRow]) -> list[str]:
    """Store ``events`` in order, each body (by reserved id) that one of them uses once, and demand for every consumer.

    Returns the consumers. Poke ``demand`` after the commit.
    """
    if not events:
        return []
    consumers = await statements.lock_consumers(hot, asset_ids=sorted({event.asset_id for event in events}))
    used = sorted({event.body_id for event in events})
    await statements.insert_events(
        hot, bodies=[(body_id, bodies[body_id]) for body_id in used], events=events, consumers=consumers
    )
    return consumers


def body_of(payload: str) -> str:
    """The body of an event that a trigger made, from the JSON text of its payload."""
    return f'{{"from_trigger": true, "payload": {payload}}}'


def event_of(watcher: WatcherRow, *, event_id: int, body_id: int, source: str | None, key: str | None) -> EventRow:
    """The event that a message (named by ``source`` and ``key``) makes of the asset of a watcher."""
    return EventRow(
        id=event_id,
        asset_id=watcher.asset_id,
        body_id=body_id,
        origin="trigger",
        trigger_id=watcher.trigger_id,
        watcher_name=watcher.name,
        source=source,
        key=key,
    )


def message_identity(*parts: str | int | None) -> bytes:
    """SHA-256 over the parts, each with its length before it, so that no two lists of parts look alike."""
    digest = hashlib.sha256()
    for part in parts:
        if part is None:
            digest.update(b"-:")
            continue
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()
