"""Asset events, their identities, and what could not become an event."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from app.domain.states import DeadLetterState
from app.store.tables.base import Json, created, exactly_when, key, metadata, moment, one_of

#: The body of an event, stored once however many assets share it: the ``extra`` an author sees.
event_body = Table("event_body", metadata, key(), Column("extra", Json, nullable=False))

asset_event = Table(
    "asset_event",
    metadata,
    key(),
    Column("asset_id", BigInteger, ForeignKey("asset.id", ondelete="CASCADE"), nullable=False),
    Column("body_id", BigInteger, ForeignKey("event_body.id"), nullable=False),
    #: ``trigger``, ``rest`` or ``task``.
    Column("origin", String(8), nullable=False),
    #: No foreign key: an event outlives the trigger that made it.
    Column("trigger_id", BigInteger),
    Column("watcher_name", Text),
    #: Identity of the message, in readable form; NULL where the source has none.
    Column("source", Text),
    Column("key", Text),
    Column("source_dag_id", Text),
    Column("source_task_id", Text),
    Column("source_run_id", Text),
    Column("source_map_index", Integer, nullable=False, server_default="-1"),
    moment("timestamp", nullable=False),
    #: The dead letter that was requeued to make this event. No foreign key: the event outlives it.
    Column("requeued_from", BigInteger),
    CheckConstraint("origin IN ('trigger', 'rest', 'task')", name="origin"),
    Index("ix_asset_event_asset_id", "asset_id", "id"),
    Index("ix_asset_event_timestamp", "timestamp", "id"),
    Index("ix_asset_event_body_id", "body_id"),
)

#: "This message already made an event of this asset." ``identity`` is SHA-256 over source and key. It outlives a purged
#: event (no foreign key) until its de-duplication period ends.
event_identity = Table(
    "event_identity",
    metadata,
    Column("asset_id", BigInteger, ForeignKey("asset.id", ondelete="CASCADE"), primary_key=True),
    Column("identity", LargeBinary, primary_key=True),
    Column("event_id", BigInteger, nullable=False),
    created(),
    Index("ix_event_identity_created_at", "created_at"),
)

#: ``Idempotency-Key`` of a request, with a digest of its body and the event it made.
idempotency_key = Table(
    "idempotency_key",
    metadata,
    Column("key", Text, primary_key=True),
    Column("body_digest", LargeBinary, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    created(),
    Index("ix_idempotency_key_created_at", "created_at"),
)

#: A message that could not become an event. Storing it counts as storing: then the message is acknowledged.
dead_letter = Table(
    "dead_letter",
    metadata,
    key(),
    Column("trigger_id", BigInteger),
    Column("asset_id", BigInteger, ForeignKey("asset.id", ondelete="SET NULL")),
    Column("source", Text),
    Column("key", Text),
    #: SHA-256 over trigger, source and key, so that a redelivery makes no second letter; NULL without identity.
    Column("identity", LargeBinary),
    #: Short stable word: nan, cycle, depth, size, surrogate, type, ... ``filter`` and ``schema`` are refusals by one
    #: asset: without an asset it was deleted since.
    Column("code", String(32), nullable=False),
    Column("reason", Text, nullable=False),
    #: The undecoded message up to a limit; ``raw_size`` is its full size in bytes.
    Column("raw", LargeBinary),
    Column("raw_size", BigInteger),
    created(),
    #: What would have been the payload of the event, where there is one.
    Column("payload", Json),
    Column("state", String(16), nullable=False, server_default="held"),
    moment("requeued_at"),
    #: The events that requeueing made, or found made already from the same message.
    Column("event_ids", ARRAY(BigInteger)),
    one_of("state", DeadLetterState, name="state"),
    exactly_when("state", [DeadLetterState.REQUEUED], "requeued_at", name="requeued"),
    Index("uq_dead_letter_identity", "identity", unique=True, postgresql_where="identity IS NOT NULL"),
    Index("ix_dead_letter_trigger_id", "trigger_id", "id"),
    Index("ix_dead_letter_created_at", "created_at", "id"),
)
