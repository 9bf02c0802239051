"""The deployment and its processes."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
)

from app.store.tables.base import Json, created, key, metadata, moment

#: One row: the name of this deployment (consumer groups are named after it).
deployment = Table(
    "deployment",
    metadata,
    Column("id", SmallInteger, primary_key=True, server_default="1", autoincrement=False),
    Column("name", Text, nullable=False),
    created(),
    CheckConstraint("id = 1", name="single_row"),
)

#: A process of the service. ``id`` is the owner named by claims; its session advisory lock is ``(JOB_LOCK_SPACE, id)``.
job = Table(
    "job",
    metadata,
    key(),
    Column("job_type", String(32), nullable=False),
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("capacity", Integer),
    Column("queues", ARRAY(Text)),
    Column("team_name", Text),
    Column("details", Json),
    created("started_at"),
    moment("latest_heartbeat", nullable=False),
    #: When it last did what it is there for (a round of its loop that reached the database).
    moment("latest_progress"),
    moment("ended_at"),
    CheckConstraint("job_type IN ('scheduler', 'triggerer', 'dag_processor', 'api_server')", name="job_type"),
    Index("ix_job_alive", "job_type", postgresql_where="ended_at IS NULL"),
)
JOB_LOCK_SPACE = 7301

#: Which process does what only one may do. ``term`` is raised with each take-over; what the holder does repeats it.
leadership = Table(
    "leadership",
    metadata,
    Column("role", String(32), primary_key=True),
    Column("owner_id", BigInteger, ForeignKey("job.id"), nullable=False),
    Column("term", BigInteger, nullable=False),
    created("taken_at"),
    moment("renewed_at", nullable=False),
)
