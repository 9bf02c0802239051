"""Triggers: what runs in triggerers, who owns it, and where its sources stand."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
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

from app.domain.states import TriggerStatus
from app.store.tables.base import Json, created, key, metadata, moment, one_of

trigger = Table(
    "trigger",
    metadata,
    key(),
    #: ``asset``: wanted by watchers. ``task``: a deferred task instance waits for it.
    Column("kind", String(16), nullable=False),
    #: SHA-256 (hex) over class path and canonical kwargs.
    Column("identity", String(64), nullable=False),
    Column("classpath", Text, nullable=False),
    #: Canonical kwargs, encrypted.
    Column("kwargs", LargeBinary, nullable=False),
    Column("queue", Text),
    Column("team_name", Text),
    #: Code the class needs; NULL for installed classes.
    Column("bundle_digest", String(64), ForeignKey("bundle.digest")),
    #: Whether its source never offers a message again that was acknowledged or passed by a stored position. Of other
    #: sources (folders, listings) the identities are kept as long as the trigger lives.
    Column("acknowledges", Boolean, nullable=False, server_default="false"),
    #: Whether it should run: some linked asset has an active, unpaused consumer (or a task waits).
    Column("wanted", Boolean, nullable=False),
    Column("status", String(16), nullable=False),
    #: Owner (job id) and epoch: each claim raises the epoch, each write of an owner repeats both.
    Column("owner_id", BigInteger, ForeignKey("job.id")),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("start_count", Integer, nullable=False, server_default="0"),
    Column("restarts", Integer, nullable=False, server_default="0"),
    Column("events", BigInteger, nullable=False, server_default="0"),
    Column("duplicates", BigInteger, nullable=False, server_default="0"),
    Column("refused", BigInteger, nullable=False, server_default="0"),
    moment("last_event_at"),
    Column("last_error", Text),
    moment("last_error_at"),
    Column("consecutive_errors", Integer, nullable=False, server_default="0"),
    moment("next_attempt_at"),
    #: Messages that wait at the source, as its trigger said last; NULL is unknown.
    Column("lag", BigInteger),
    moment("lag_at"),
    #: Why the source counts as degraded: it stood still. Cleared by whatever the trigger delivers.
    Column("degraded_reason", Text),
    moment("degraded_since"),
    #: It blocked or killed a runner: whoever owns it runs it in a runner of its own, until its code changes.
    Column("runs_alone", Boolean, nullable=False, server_default="false"),
    #: Runners that were killed while it executed, since it was last healthy for long.
    Column("strikes", Integer, nullable=False, server_default="0"),
    #: Why it waits at its yield: a limit. Any change of its status clears it.
    Column("throttled_reason", Text),
    moment("throttled_since"),
    #: A person asked that it starts again now. Any change of its status clears it.
    moment("retry_requested_at"),
    #: Deferral: the attempt that waits. Filled by the deferral issue's code.
    Column("task_instance_id", BigInteger, ForeignKey("task_instance.id", ondelete="CASCADE")),
    moment("timeout_at"),
    created("created_date"),
    CheckConstraint("kind IN ('asset', 'task')", name="kind"),
    CheckConstraint("(kind = 'task') = (task_instance_id IS NOT NULL)", name="waiting_task"),
    one_of("status", TriggerStatus, name="status"),
    CheckConstraint("(status = 'unassigned') = (owner_id IS NULL)", name="owned"),
    Index("uq_trigger_asset_identity", "identity", unique=True, postgresql_where="kind = 'asset'"),
    Index("ix_trigger_unassigned", "created_date", "id", postgresql_where="status = 'unassigned' AND wanted"),
    Index("ix_trigger_owner_id", "owner_id", postgresql_where="owner_id IS NOT NULL"),
    Index("ix_trigger_task_instance_id", "task_instance_id", postgresql_where="task_instance_id IS NOT NULL"),
)

#: Where to resume in a source, written in the transaction of the events. ``position`` is only read by the trigger.
source_position = Table(
    "source_position",
    metadata,
    Column("trigger_id", BigInteger, ForeignKey("trigger.id", ondelete="CASCADE"), primary_key=True),
    Column("source", Text, primary_key=True),
    Column("lane", Text, primary_key=True),
    Column("position", Json, nullable=False),
    moment("updated_at", nullable=False),
)
