"""Statements by which events, their bodies, identities and demand come to be. Each takes a hot connection first.

Locks are taken in one order by everybody who stores events: identities (sorted), DAG rows (by id), trigger rows (by
id). Two transactions that touch the same rows therefore queue up, they do not deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.store.database import Connection, HotConnection

PAUSED_REASON = "the DAG was paused when the event arrived"


class WatcherRow(msgspec.Struct, frozen=True, kw_only=True):
    """A link of a trigger to an active asset, as it is now."""

    id: int
    trigger_id: int
    asset_id: int
    name: str


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event about to be stored. ``id`` and ``body_id`` were reserved with :func:`reserve_ids`."""

    id: int
    asset_id: int
    body_id: int
    origin: str
    trigger_id: int | None = None
    watcher_name: str | None = None
    source: str | None = None
    key: str | None = None
    source_dag_id: str | None = None
    source_task_id: str | None = None
    source_run_id: str | None = None
    source_map_index: int = -1


class IdentityRow(msgspec.Struct, frozen=True, kw_only=True):
    """ "This message made that event of this asset." """

    asset_id: int
    identity: bytes
    event_id: int


class IdempotencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered ``Idempotency-Key``."""

    key: str
    body_digest: bytes
    event_id: int


async def hot_of(connection: Connection | HotConnection) -> HotConnection:
    """The bare connection beneath a SQLAlchemy one, in the same transaction; a bare one is returned as it is."""
    if not isinstance(connection, Connection):
        return connection
    raw = await connection.get_raw_connection()
    hot = raw.driver_connection
    assert hot is not None
    if not hot.is_in_transaction():
        # SQLAlchemy begins only with its own first statement; on the bare connection ours would commit by themselves.
        await connection.exec_driver_sql("SELECT 1")
    return hot


async def watchers_of(hot: HotConnection, *, watcher_ids: Sequence[int]) -> list[WatcherRow]:
    """Those of the watchers that still exist and whose asset is active."""
    rows = await hot.fetch(
        """
        SELECT w.id, w.trigger_id, w.asset_id, w.name
        FROM asset_watcher w JOIN asset a ON a.id = w.asset_id
        WHERE w.id = ANY($1::bigint[]) AND a.is_active
        """,
        watcher_ids,
    )
    return [WatcherRow(id=row[0], trigger_id=row[1], asset_id=row[2], name=row[3]) for row in rows]


async def reserve_ids(hot: HotConnection, *, events: int, bodies: int) -> tuple[list[int], list[int]]:
    """Ids for that many events and bodies, ascending. Unused ones are gaps, which are harmless."""
    row = await hot.fetchrow(
        """
        SELECT ARRAY(SELECT nextval('asset_event_id_seq') FROM generate_series(1, $1::int)),
               ARRAY(SELECT nextval('event_body_id_seq') FROM generate_series(1, $2::int))
        """,
        events,
        bodies,
    )
    return row[0], row[1]


async def insert_identities(hot: HotConnection, *, rows: Sequence[IdentityRow]) -> set[tuple[int, bytes]]:
    """Insert what is new and return it as ``(asset_id, identity)``. Waits for a transaction storing the same now.

    ``rows`` must not name one identity of an asset twice.
    """
    ordered = sorted(rows, key=lambda row: (row.asset_id, row.identity))
    found = await hot.fetch(
        """
        INSERT INTO event_identity (asset_id, identity, event_id)
        SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[])
        ON CONFLICT (asset_id, identity) DO NOTHING
        RETURNING asset_id, identity
        """,
        [row.asset_id for row in ordered],
        [row.identity for row in ordered],
        [row.event_id for row in ordered],
    )
    return {(row[0], row[1]) for row in found}


async def events_of_identities(
    hot: HotConnection, *, keys: Sequence[tuple[int, bytes]]
) -> dict[tuple[int, bytes], int]:
    """The event that each identity, as ``(asset_id, identity)``, stands for."""
    rows = await hot.fetch(
        """
        SELECT i.asset_id, i.identity, i.event_id
        FROM event_identity i JOIN unnest($1::bigint[], $2::bytea[]) AS k(asset_id, identity) USING (asset_id, identity)
        """,
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def lock_consumers(hot: HotConnection, *, asset_ids: Sequence[int]) -> list[str]:
    """Lock the active DAGs scheduled on any of the assets, in dag_id order, and return their ids.

    A statement of its own: what reads the schedules afterwards then sees every change committed before the locks.
    """
    rows = await hot.fetch(
        """
        SELECT d.dag_id FROM dag d
        WHERE d.is_active
          AND d.dag_id IN (SELECT r.dag_id FROM asset_reference r
                           WHERE r.kind = 'schedule' AND r.asset_id = ANY($1::bigint[]))
        ORDER BY d.dag_id FOR NO KEY UPDATE OF d
        """,
        asset_ids,
    )
    return [row[0] for row in rows]


_INSERT_EVENTS = """
WITH body AS (
    INSERT INTO event_body (id, extra) SELECT * FROM unnest($1::bigint[], $2::json[])
), arrived AS MATERIALIZED (
    SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::text[], $9::text[],
                         $10::text[], $11::text[], $12::text[], $13::text[], $14::int[])
        WITH ORDINALITY AS a(event_id, asset_id, body_id, origin, trigger_id, watcher_name, source, key,
                             source_dag_id, source_task_id, source_run_id, source_map_index, place)
), stored AS (
    INSERT INTO asset_event (id, asset_id, body_id, origin, trigger_id, watcher_name, source, key,
                             source_dag_id, source_task_id, source_run_id, source_map_index, "timestamp")
    SELECT event_id, asset_id, body_id, origin, trigger_id, watcher_name, source, key,
           source_dag_id, source_task_id, source_run_id, source_map_index, now()
    FROM arrived ORDER BY place
), due AS MATERIALIZED (
    SELECT d.dag_id, d.is_paused, a.event_id, a.asset_id,
           row_number() OVER (PARTITION BY d.dag_id ORDER BY a.place) AS place
    FROM arrived a
    JOIN asset_reference r ON r.asset_id = a.asset_id AND r.kind = 'schedule'
    JOIN dag d ON d.dag_id = r.dag_id
    WHERE d.dag_id = ANY($15::text[])
), ordered AS (
    UPDATE dag d
    SET last_arrival = d.last_arrival + n.arrivals, has_demand = d.has_demand OR NOT n.is_paused
    FROM (SELECT dag_id, bool_and(is_paused) AS is_paused, count(*) AS arrivals FROM due GROUP BY dag_id) n
    WHERE d.dag_id = n.dag_id
    RETURNING d.dag_id, d.last_arrival - n.arrivals AS before
)
INSERT INTO demand (dag_id, event_id, asset_id, arrival, state, reason)
SELECT due.dag_id, due.event_id, due.asset_id, ordered.before + due.place,
       CASE WHEN due.is_paused THEN 'skipped' ELSE 'pending' END,
       CASE WHEN due.is_paused THEN $16::text END
FROM due JOIN ordered USING (dag_id)
"""


async def insert_events(
    hot: HotConnection, *, bodies: Sequence[tuple[int, str]], events: Sequence[EventRow], consumers: Sequence[str]
) -> None:
    """Insert bodies (id, JSON text), events and demand; the order of ``events`` becomes the arrival order of each DAG.

    ``consumers`` are the DAGs locked by :func:`lock_consumers`. A paused DAG's demand is recorded as skipped.
    """
    await hot.execute(
        _INSERT_EVENTS,
        [body[0] for body in bodies],
        [body[1] for body in bodies],
        [event.id for event in events],
        [event.asset_id for event in events],
        [event.body_id for event in events],
        [event.origin for event in events],
        [event.trigger_id for event in events],
        [event.watcher_name for event in events],
        [event.source for event in events],
        [event.key for event in events],
        [event.source_dag_id for event in events],
        [event.source_task_id for event in events],
        [event.source_run_id for event in events],
        [event.source_map_index for event in events],
        consumers,
        PAUSED_REASON,
    )


async def insert_idempotency_keys(hot: HotConnection, *, rows: Sequence[IdempotencyRow]) -> set[str]:
    """Insert the keys that are new and return them. Waits for a transaction that is inserting the same key."""
    ordered = sorted(rows, key=lambda row: row.key)
    found = await hot.fetch(
        """
        INSERT INTO idempotency_key (key, body_digest, event_id)
        SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[])
        ON CONFLICT (key) DO NOTHING
        RETURNING key
        """,
        [row.key for row in ordered],
        [row.body_digest for row in ordered],
        [row.event_id for row in ordered],
    )
    return {row[0] for row in found}


async def idempotency_keys(hot: HotConnection, *, keys: Sequence[str]) -> dict[str, IdempotencyRow]:
    """What is remembered of these keys."""
    rows = await hot.fetch("SELECT key, body_digest, event_id FROM idempotency_key WHERE key = ANY($1::text[])", keys)
    return {row[0]: IdempotencyRow(key=row[0], body_digest=row[1], event_id=row[2]) for row in rows}


class PostsStart(msgspec.Struct, frozen=True, kw_only=True):
    """What storing posts begins with."""

    active: frozenset[int]
    event_ids: list[int]
    body_ids: list[int]
    moment: datetime


async def start_posts(hot: HotConnection, *, asset_ids: Sequence[int], posts: int) -> PostsStart:
    """Which of the assets exist and are active, ids for an event and a body of each post, and the moment that the
    events of this transaction carry: one round trip for a caller who waits."""
    row = await hot.fetchrow(
        """
        SELECT ARRAY(SELECT id FROM asset WHERE id = ANY($1::bigint[]) AND is_active),
               ARRAY(SELECT nextval('asset_event_id_seq') FROM generate_series(1, $2::int)),
               ARRAY(SELECT nextval('event_body_id_seq') FROM generate_series(1, $2::int)),
               now()
        """,
        asset_ids,
        posts,
    )
    return PostsStart(active=frozenset(row[0]), event_ids=row[1], body_ids=row[2], moment=row[3])


async def assets_by_key(
    hot: HotConnection, *, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, bool]]:
    """``(id, is_active)`` of each ``(name, uri)`` that exists."""
    rows = await hot.fetch(
        """
        SELECT a.name, a.uri, a.id, a.is_active
        FROM asset a JOIN unnest($1::text[], $2::text[]) AS k(name, uri) USING (name, uri)
        """,
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}
