"""Statements about trigger rows: claims, guarded transitions, counters.

Whoever changes several trigger rows locks them in id order. Each write of an owner repeats owner and epoch; a row it
misses is not returned, and the caller is fenced for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from app.store.database import HotConnection


class ClaimedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as its new owner gets it; ``kwargs`` is still encrypted."""

    id: int
    epoch: int
    classpath: str
    kwargs: bytes
    identity: str
    kind: str
    bundle_digest: str | None
    bundle_entry: str | None
    restarts: int
    runs_alone: bool
    strikes: int
    queue: str | None


class FilterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher of a trigger with its filter and schema."""

    id: int
    trigger_id: int
    asset_id: int
    when: str | None
    schema: str | None


class OwnedRow(msgspec.Struct, frozen=True, kw_only=True):
    """What may change about an owned trigger while it runs."""

    id: int
    epoch: int
    wanted: bool
    retry_requested: bool = False


#: Number and hash of rows, number and hash of watchers.
Digest = tuple[int, int, int, int]
#: Ids of a bucket, as a power of two; the statements say it themselves.
_BUCKET_BITS = 10


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger of this owner and epoch brought."""

    trigger_id: int
    epoch: int
    events: int = 0
    duplicates: int = 0
    refused: int = 0


_CLAIM = """
WITH chosen AS (
    SELECT t.id FROM trigger t
    WHERE t.status = 'unassigned' AND t.wanted
      AND CASE WHEN $3::text[] IS NULL THEN t.queue IS NULL ELSE t.queue = ANY($3::text[]) END
      AND CASE WHEN $4::text IS NULL THEN t.team_name IS NULL ELSE t.team_name = $4::text END
    ORDER BY t.created_date, t.id
    LIMIT $2::int
    FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
    UPDATE trigger t
    SET status = 'running', owner_id = $1::bigint, epoch = t.epoch + 1, start_count = t.start_count + 1,
        next_attempt_at = NULL
    FROM chosen WHERE t.id = chosen.id
    RETURNING t.id, t.epoch, t.classpath, t.kwargs, t.identity, t.kind, t.bundle_digest, t.restarts, t.created_date,
              t.runs_alone, t.strikes, t.queue
), noted AS (
    INSERT INTO state_change (subject, subject_id, from_state, to_state, reason)
    SELECT 'trigger', id, 'unassigned', 'running', 'claimed by job ' || $1::bigint FROM claimed
)
SELECT c.id, c.epoch, c.classpath, c.kwargs, c.identity, c.kind, c.bundle_digest, b.entry, c.restarts, c.runs_alone,
       c.strikes, c.queue
FROM claimed c LEFT JOIN bundle b ON b.digest = c.bundle_digest
ORDER BY c.created_date, c.id
"""


async def claim_triggers(
    hot: HotConnection, *, owner_id: int, limit: int, queues: Sequence[str] | None, team_name: str | None
) -> list[ClaimedRow]:
    """Take up to ``limit`` wanted, unowned triggers, oldest first; each claim raises the epoch.

    Without ``queues`` only triggers without a queue are taken, with them only those in one of them.
    """
    rows = await hot.fetch(_CLAIM, owner_id, limit, None if queues is None else list(queues), team_name)
    names = (
        "id", "epoch", "classpath", "kwargs", "identity", "kind", "bundle_digest", "bundle_entry", "restarts",
        "runs_alone", "strikes", "queue",
    )  # fmt: skip
    return [ClaimedRow(**dict(zip(names, row, strict=True))) for row in rows]


async def filters_of(hot: HotConnection, *, trigger_ids: Sequence[int]) -> list[FilterRow]:
    """The watchers on active assets of the triggers, in id order. A schema that many share is read once."""
    rows = await hot.fetch(
        """
        SELECT w.id, w.trigger_id, w.asset_id, w.when_expression, w.digest,
               CASE WHEN row_number() OVER (PARTITION BY w.digest ORDER BY w.id) = 1 THEN w.payload_schema END
        FROM (SELECT w.*, sha256(convert_to(w.payload_schema, 'UTF8')) AS digest
              FROM asset_watcher w JOIN asset a ON a.id = w.asset_id
              WHERE w.trigger_id = ANY($1::bigint[]) AND a.is_active) w
        ORDER BY w.id
        """,
        trigger_ids,
    )
    schemas = {row[4]: row[5] for row in rows if row[5] is not None}
    return [
        FilterRow(id=row[0], trigger_id=row[1], asset_id=row[2], when=row[3], schema=schemas.get(row[4]))
        for row in rows
    ]


def bucket_of(trigger_id: int) -> int:
    """The bucket of an id: the statements below sum up, and read, so many neighbouring ids at a time."""
    return trigger_id >> _BUCKET_BITS


def ids_of(bucket: int) -> range:
    """The ids of a bucket."""
    return range(bucket << _BUCKET_BITS, (bucket + 1) << _BUCKET_BITS)


async def owned_triggers(hot: HotConnection, *, owner_id: int, buckets: Sequence[int]) -> list[OwnedRow]:
    """The triggers of an owner in these buckets."""
    rows = await hot.fetch(
        """
        SELECT t.id, t.epoch, t.wanted, t.retry_requested_at IS NOT NULL FROM unnest($2::bigint[]) AS b(bucket)
        JOIN trigger t ON t.id >= b.bucket << 10 AND t.id < (b.bucket + 1) << 10
        WHERE t.owner_id = $1::bigint
        """,
        owner_id,
        buckets,
    )
    return [OwnedRow(id=row[0], epoch=row[1], wanted=row[2], retry_requested=row[3]) for row in rows]


async def digests_of(hot: HotConnection, *, owner_id: int) -> dict[int, Digest]:
    """What the rows of an owner's triggers and of their watchers sum up to, by bucket.

    A bucket is equal to what it was if and (as good as) only if nothing in it changed that its owner has to follow.
    Whole rows of watchers are taken, so that a column added later counts as well.
    """
    rows = await hot.fetch(
        """
        SELECT id >> 10, count(*),
               bit_xor(hashint8extended(id, epoch * 4 + wanted::int * 2 + (retry_requested_at IS NOT NULL)::int))
        FROM trigger WHERE owner_id = $1::bigint GROUP BY 1
        """,
        owner_id,
    )
    links = await hot.fetch(
        """
        SELECT bucket, count(*), bit_xor(hash) FROM (
            SELECT w.trigger_id >> 10 AS bucket, hash_record_extended(w, 0) AS hash
            FROM trigger t JOIN asset_watcher w ON w.trigger_id = t.id JOIN asset a ON a.id = w.asset_id
            WHERE t.owner_id = $1::bigint AND a.is_active OFFSET 0) l
        GROUP BY bucket
        """,
        owner_id,
    )
    watched = {row[0]: (row[1], row[2]) for row in links}
    return {row[0]: (row[1], row[2], *watched.get(row[0], (0, 0))) for row in rows}


async def add_tallies(hot: HotConnection, *, owner_id: int, tallies: Sequence[Tally]) -> set[tuple[int, int]]:
    """Count what the triggers brought; return ``(id, epoch)`` of those still this owner's, whose rows are now locked.

    A missing one is fenced: the caller must roll back what it stored for it.
    """
    rows = await hot.fetch(
        """
        WITH said AS (
            SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::int[])
                AS s(trigger_id, epoch, events, duplicates, refused)
        ), held AS MATERIALIZED (
            SELECT t.id, t.epoch FROM trigger t JOIN said s ON s.trigger_id = t.id AND s.epoch = t.epoch
            WHERE t.owner_id = $1::bigint ORDER BY t.id FOR NO KEY UPDATE OF t
        )
        UPDATE trigger t
        SET events = t.events + s.events, duplicates = t.duplicates + s.duplicates, refused = t.refused + s.refused,
            last_event_at = CASE WHEN s.events > 0 THEN now() ELSE t.last_event_at END,
            consecutive_errors = CASE WHEN s.events > 0 THEN 0 ELSE t.consecutive_errors END,
            degraded_reason = NULL, degraded_since = NULL
        FROM said s JOIN held h ON h.id = s.trigger_id AND h.epoch = s.epoch
        WHERE t.id = s.trigger_id
        RETURNING t.id, s.epoch
        """,
        owner_id,
        [tally.trigger_id for tally in tallies],
        [tally.epoch for tally in tallies],
        [tally.events for tally in tallies],
        [tally.duplicates for tally in tallies],
        [tally.refused for tally in tallies],
    )
    return {(row[0], row[1]) for row in rows}


async def installed_classes(hot: HotConnection) -> list[str]:
    """Import paths of the classes of wanted triggers that need no pipeline's code."""
    rows = await hot.fetch("SELECT DISTINCT classpath FROM trigger WHERE wanted AND bundle_digest IS NULL")
    return [row[0] for row in rows]


async def saturated_triggers(hot: HotConnection, *, trigger_ids: Sequence[int], limit: int) -> set[int]:
    """Those with a consumer (active, not paused) that has at least ``limit`` events waiting for a run.

    The counts are cut at the limit, so that a long backlog costs no more than a full one; each consumer is counted
    once, however many of its assets a trigger serves.
    """
    rows = await hot.fetch(
        """
        WITH fed AS MATERIALIZED (
            SELECT DISTINCT w.trigger_id, d.dag_id
            FROM asset_watcher w
            JOIN asset_reference r ON r.asset_id = w.asset_id AND r.kind = 'schedule'
            JOIN dag d ON d.dag_id = r.dag_id
            WHERE w.trigger_id = ANY($1::bigint[]) AND d.is_active AND NOT d.is_paused AND d.last_arrival >= $2::bigint
        ), saturated AS MATERIALIZED (
            SELECT c.dag_id FROM (SELECT DISTINCT dag_id FROM fed) c
            WHERE (SELECT count(*) FROM (SELECT 1 FROM demand p WHERE p.dag_id = c.dag_id AND p.state = 'pending'
                                         LIMIT $2::bigint) p)
                + (SELECT coalesce(sum(g.events), 0) FROM (SELECT g.events FROM demand_group g
                                                          WHERE g.dag_id = c.dag_id AND g.state <> 'started'
                                                          LIMIT $2::bigint) g) >= $2::bigint
        )
        SELECT DISTINCT fed.trigger_id FROM fed JOIN saturated USING (dag_id)
        """,
        trigger_ids,
        limit,
    )
    return {row[0] for row in rows}


_MOVE = """
WITH held AS MATERIALIZED (
    SELECT t.id, t.status FROM trigger t
    JOIN unnest($2::bigint[], $3::bigint[]) AS s(id, epoch) ON s.id = t.id AND s.epoch = t.epoch
    WHERE t.owner_id = $1::bigint AND t.status = ANY($4::text[]) ORDER BY t.id FOR NO KEY UPDATE OF t
), moved AS (
    UPDATE trigger t SET {changes}, throttled_reason = NULL, throttled_since = NULL, retry_requested_at = NULL
    FROM held WHERE t.id = held.id
    RETURNING t.id, held.status AS before, t.status AS after
), noted AS (
    INSERT INTO state_change (subject, subject_id, from_state, to_state, reason)
    SELECT 'trigger', id, before, after, {reason} FROM moved WHERE before <> after
)
SELECT id FROM moved
"""
_RELEASE = _MOVE.format(
    changes="status = 'unassigned', owner_id = NULL, next_attempt_at = NULL", reason="'released by its owner'"
)
_START_AGAIN = _MOVE.format(
    changes="status = 'running', next_attempt_at = NULL, start_count = t.start_count + 1, restarts = t.restarts + 1",
    reason="'started again'",
)
_FAIL = _MOVE.format(
    changes="""status = $5::text, next_attempt_at = $6::timestamptz, last_error = $7::text, last_error_at = now(),
               consecutive_errors = t.consecutive_errors + 1,
               runs_alone = t.runs_alone OR $5::text = 'quarantined'""",
    reason="left($7::text, 500)",
)


async def release_triggers(hot: HotConnection, *, owner_id: int, triggers: Sequence[tuple[int, int]]) -> set[int]:
    """Give up the ``(id, epoch)`` triggers, whatever they are doing; returns those that were ours."""
    states = ["running", "backing_off", "quarantined"]
    rows = await hot.fetch(_RELEASE, owner_id, [each[0] for each in triggers], [each[1] for each in triggers], states)
    return {row[0] for row in rows}


async def start_again(hot: HotConnection, *, owner_id: int, triggers: Sequence[tuple[int, int]]) -> set[int]:
    """running (it returned), backing_off or quarantined → running; counted as a restart. Those missing are fenced."""
    states = ["running", "backing_off", "quarantined"]
    ids, epochs = [each[0] for each in triggers], [each[1] for each in triggers]
    return {row[0] for row in await hot.fetch(_START_AGAIN, owner_id, ids, epochs, states)}


async def fail_trigger(
    hot: HotConnection,
    *,
    owner_id: int,
    trigger_id: int,
    epoch: int,
    status: str,
    error: str,
    next_attempt_at: datetime,
) -> bool:
    """→ ``status`` (backing_off or quarantined) until ``next_attempt_at``. False: fenced."""
    states = ["running", "backing_off", "quarantined"]
    rows = await hot.fetch(_FAIL, owner_id, [trigger_id], [epoch], states, status, next_attempt_at, error)
    return bool(rows)


async def note_strikes(hot: HotConnection, *, owner_id: int, trigger_id: int, epoch: int, strikes: int) -> bool:
    """Record how many runners were killed while it executed. False: fenced."""
    rows = await hot.fetch(
        """
        UPDATE trigger SET strikes = $4::int
        WHERE id = $2::bigint AND owner_id = $1::bigint AND epoch = $3::bigint RETURNING id
        """,
        owner_id,
        trigger_id,
        epoch,
        strikes,
    )
    return bool(rows)


async def note_source(
    hot: HotConnection, *, owner_id: int, trigger_id: int, epoch: int, error: str | None, failures: int
) -> bool:
    """Record that a source fails (``failures`` times in a row by now) or, without ``error``, answers again."""
    rows = await hot.fetch(
        """
        UPDATE trigger
        SET consecutive_errors = $4::int, last_error = coalesce($5::text, last_error),
            last_error_at = CASE WHEN $5::text IS NULL THEN last_error_at ELSE now() END
        WHERE id = $2::bigint AND owner_id = $1::bigint AND epoch = $3::bigint
        RETURNING id
        """,
        owner_id,
        trigger_id,
        epoch,
        failures,
        error,
    )
    return bool(rows)


async def take_from(hot: HotConnection, *, owner_ids: Sequence[int], reason: str) -> list[int]:
    """Unassign all triggers of these owners, who are dead or gave up; guarded by nothing but the owner."""
    rows = await hot.fetch(
        """
        WITH held AS MATERIALIZED (
            SELECT id, status FROM trigger WHERE owner_id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE
        ), noted AS (
            INSERT INTO state_change (subject, subject_id, from_state, to_state, reason)
            SELECT 'trigger', id, status, 'unassigned', $2::text FROM held
        )
        UPDATE trigger t
        SET status = 'unassigned', owner_id = NULL, next_attempt_at = NULL, throttled_reason = NULL,
            throttled_since = NULL, retry_requested_at = NULL
        FROM held WHERE t.id = held.id
        RETURNING t.id
        """,
        owner_ids,
        reason,
    )
    return [row[0] for row in rows]
