"""Task instances, what they leave behind, and the record of every change of state."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from app.domain.states import FINAL_TASK_STATES, TaskState
from app.store.tables.base import Json, created, exactly_when, key, metadata, moment, one_of

task_instance = Table(
    "task_instance",
    metadata,
    key(),
    Column("dag_run_id", BigInteger, ForeignKey("dag_run.id", ondelete="CASCADE"), nullable=False),
    Column("dag_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("map_index", Integer, nullable=False, server_default="-1"),
    Column("state", String(24), nullable=False),
    #: Number of the current (or, before the first start, coming) try, from 1; raised when a retry is scheduled.
    Column("try_number", Integer, nullable=False, server_default="1"),
    Column("max_tries", Integer, nullable=False),
    #: Executor's job id and fencing number; each claim raises ``epoch``, every report repeats both.
    Column("owner_id", BigInteger, ForeignKey("job.id")),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("pool", Text, nullable=False),
    Column("pool_slots", Integer, nullable=False),
    Column("queue", Text, nullable=False),
    Column("priority_weight", Integer, nullable=False),
    Column("operator", Text, nullable=False),
    moment("scheduled_at"),
    moment("queued_at"),
    #: First start of the current try.
    moment("start_date"),
    moment("end_date"),
    #: When up_for_retry or up_for_reschedule ends.
    moment("next_attempt_at"),
    Column("hostname", Text),
    Column("pid", Integer),
    #: Why it is where it is, for people (failure reason, rule that skipped it).
    Column("note", Text),
    created(),
    UniqueConstraint("dag_run_id", "task_id", "map_index"),
    one_of("state", TaskState, name="state"),
    exactly_when("state", FINAL_TASK_STATES, "end_date", name="finished"),
    CheckConstraint("(state IN ('queued', 'running')) = (owner_id IS NOT NULL)", name="owned"),
    CheckConstraint("(state IN ('up_for_retry', 'up_for_reschedule')) = (next_attempt_at IS NOT NULL)", name="waits"),
    Index("ix_task_instance_scheduled", "priority_weight", "scheduled_at", postgresql_where="state = 'scheduled'"),
    Index("ix_task_instance_owner_id", "owner_id", postgresql_where="owner_id IS NOT NULL"),
    Index("ix_task_instance_active", "dag_id", postgresql_where="state IN ('queued', 'running', 'deferred')"),
    Index("ix_task_instance_next_attempt", "next_attempt_at", postgresql_where="next_attempt_at IS NOT NULL"),
)

xcom = Table(
    "xcom",
    metadata,
    Column("dag_run_id", BigInteger, ForeignKey("dag_run.id", ondelete="CASCADE"), primary_key=True),
    Column("task_id", Text, primary_key=True),
    Column("map_index", Integer, primary_key=True, server_default="-1"),
    Column("key", Text, primary_key=True),
    #: Canonical text of ``watchers.encoding`` in a JSON column: reads back with the same types.
    Column("value", Json, nullable=False),
    moment("timestamp", nullable=False),
)

#: Appended in the transaction of each change of state of a run, task instance or trigger.
state_change = Table(
    "state_change",
    metadata,
    key(),
    Column("subject", String(8), nullable=False),
    Column("subject_id", BigInteger, nullable=False),
    Column("from_state", String(24)),
    Column("to_state", String(24), nullable=False),
    Column("try_number", Integer),
    Column("reason", Text),
    created("at"),
    CheckConstraint("subject IN ('run', 'task', 'trigger')", name="subject"),
    Index("ix_state_change_subject", "subject", "subject_id", "id"),
    Index("ix_state_change_trigger_at", "at", "id", postgresql_where="subject = 'trigger'"),
)
