"""From event to run: demand, groups, runs and their causes."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from app.domain.states import FINAL_RUN_STATES, DemandState, GroupState, RunState, RunType
from app.store.tables.base import Json, created, exactly_when, key, metadata, moment, one_of

#: One event for one consumer DAG. ``arrival`` is the DAG's order, fixed under the DAG's row lock in the transaction
#: that stored the event.
demand = Table(
    "demand",
    metadata,
    Column("dag_id", Text, ForeignKey("dag.dag_id", ondelete="CASCADE"), primary_key=True),
    Column("event_id", BigInteger, ForeignKey("asset_event.id"), primary_key=True),
    Column("asset_id", BigInteger, ForeignKey("asset.id", ondelete="CASCADE"), nullable=False),
    Column("arrival", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("group_id", BigInteger, ForeignKey("demand_group.id")),
    Column("reason", Text),
    created(),
    one_of("state", DemandState, name="state"),
    CheckConstraint("(state IN ('grouped', 'consumed')) = (group_id IS NOT NULL)", name="grouped"),
    UniqueConstraint("dag_id", "arrival"),
    Index("ix_demand_pending", "dag_id", "arrival", postgresql_where="state = 'pending'"),
    Index("ix_demand_event_id", "event_id"),
    Index("ix_demand_group_id", "group_id", postgresql_where="group_id IS NOT NULL"),
)

#: The events of one future run, in the DAG's order (``position``).
demand_group = Table(
    "demand_group",
    metadata,
    key(),
    Column("dag_id", Text, ForeignKey("dag.dag_id", ondelete="CASCADE"), nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("events", Integer, nullable=False),
    #: When an open batch closes by time.
    moment("closes_at"),
    created(),
    one_of("state", GroupState, name="state"),
    UniqueConstraint("dag_id", "position"),
    Index("ix_demand_group_waiting", "dag_id", "position", postgresql_where="state <> 'started'"),
    Index("uq_demand_group_collecting", "dag_id", unique=True, postgresql_where="state = 'collecting'"),
)

dag_run = Table(
    "dag_run",
    metadata,
    key(),
    Column("dag_id", Text, ForeignKey("dag.dag_id", ondelete="CASCADE"), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("dag_version_id", BigInteger, ForeignKey("dag_version.id"), nullable=False),
    Column("run_type", String(24), nullable=False),
    #: cli, rest_api, timetable, asset, ...
    Column("triggered_by", String(16), nullable=False),
    Column("triggering_user_name", Text),
    Column("state", String(16), nullable=False),
    Column("group_id", BigInteger, ForeignKey("demand_group.id"), unique=True),
    moment("logical_date"),
    moment("data_interval_start"),
    moment("data_interval_end"),
    moment("run_after", nullable=False),
    moment("queued_at", nullable=False),
    moment("start_date"),
    moment("end_date"),
    moment("last_scheduling_decision"),
    Column("conf", Json, nullable=False),
    Column("note", Text),
    #: No foreign key: deleting a run re-queues nothing.
    UniqueConstraint("dag_id", "run_id"),
    UniqueConstraint("id", "dag_id"),
    Index(
        "uq_dag_run_logical_date",
        "dag_id",
        "logical_date",
        unique=True,
        postgresql_where="logical_date IS NOT NULL AND run_type = 'scheduled'",
    ),
    Index("ix_dag_run_active", "dag_id", "id", postgresql_where="state IN ('queued', 'running')"),
    Index("ix_dag_run_ended", "end_date", "id", postgresql_where="end_date IS NOT NULL"),
    Index("ix_dag_run_dag_version_id", "dag_version_id"),
    one_of("state", RunState, name="state"),
    one_of("run_type", RunType, name="run_type"),
    exactly_when("state", FINAL_RUN_STATES, "end_date", name="finished"),
)

#: The causes of a run. One event never starts two runs of one DAG.
dag_run_event = Table(
    "dag_run_event",
    metadata,
    Column("dag_run_id", BigInteger, primary_key=True),
    Column("event_id", BigInteger, ForeignKey("asset_event.id"), primary_key=True),
    Column("dag_id", Text, nullable=False),
    #: The event whose arrival completed the condition.
    Column("triggering", Boolean, nullable=False),
    ForeignKeyConstraint(["dag_run_id", "dag_id"], ["dag_run.id", "dag_run.dag_id"], ondelete="CASCADE"),
    UniqueConstraint("dag_id", "event_id"),
    Index("ix_dag_run_event_event_id", "event_id"),
)
