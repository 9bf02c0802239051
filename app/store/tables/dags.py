"""Pipeline files, their stored code, and the DAGs they declare."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from app.store.tables.base import Json, created, key, metadata, moment

#: A pipeline file below the pipelines folder, as last read. ``path`` is relative, with forward slashes.
dag_file = Table(
    "dag_file",
    metadata,
    Column("path", Text, primary_key=True),
    #: Digest of the last version that loaded; NULL before the first good load.
    Column("bundle_digest", String(64), ForeignKey("bundle.digest")),
    moment("last_parsed_at"),
    Column("parse_duration", Float),
    #: When the file was first seen missing; after the grace period its DAGs are retired.
    moment("missing_since"),
)

#: The code of one file version: the digest covers the pipeline file and each module it loaded from the folder.
bundle = Table(
    "bundle",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("entry", Text, nullable=False),
    created(),
)
bundle_file = Table(
    "bundle_file",
    metadata,
    Column("bundle_digest", String(64), ForeignKey("bundle.digest", ondelete="CASCADE"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

import_error = Table(
    "import_error",
    metadata,
    key(),
    Column("filename", Text, nullable=False, unique=True),
    Column("line", Integer),
    Column("message", Text, nullable=False),
    Column("stack_trace", Text, nullable=False),
    moment("timestamp", nullable=False),
)

dag = Table(
    "dag",
    metadata,
    Column("dag_id", Text, primary_key=True),
    Column("file_path", Text, nullable=False),
    Column("is_paused", Boolean, nullable=False),
    #: False once the DAG vanished and its grace period passed. Its history stays.
    Column("is_active", Boolean, nullable=False),
    moment("missing_since"),
    Column("current_version_id", BigInteger, ForeignKey("dag_version.id", use_alter=True)),
    Column("max_active_runs", Integer, nullable=False),
    Column("max_active_tasks", Integer, nullable=False),
    #: Next instant at which a time schedule makes a run, and the logical date it will have.
    moment("next_run_at"),
    moment("next_logical_date"),
    #: Arrival number given to the DAG's last demand. Taking the row lock to raise it is what orders a DAG's events.
    Column("last_arrival", BigInteger, nullable=False, server_default="0"),
    Column("last_group", BigInteger, nullable=False, server_default="0"),
    #: Set with new demand, cleared by the planner that saw all of it and left no closed group: "anything to do?".
    Column("has_demand", Boolean, nullable=False, server_default="false"),
    created(),
    moment("updated_at", nullable=False),
    moment("last_parsed_at"),
    CheckConstraint("max_active_runs > 0 AND max_active_tasks > 0", name="limits"),
    Index("ix_dag_has_demand", "dag_id", postgresql_where="has_demand"),
    Index("ix_dag_next_run_at", "next_run_at", postgresql_where="next_run_at IS NOT NULL"),
)

#: A version differs from the one before in its declaration or its code. ``spec`` is a ``DagSpec``.
dag_version = Table(
    "dag_version",
    metadata,
    key(),
    Column("dag_id", Text, ForeignKey("dag.dag_id", ondelete="CASCADE"), nullable=False),
    Column("version_number", Integer, nullable=False),
    Column("bundle_digest", String(64), ForeignKey("bundle.digest"), nullable=False),
    Column("spec_digest", String(64), nullable=False),
    Column("spec", Json, nullable=False),
    created(),
    UniqueConstraint("dag_id", "version_number"),
)

#: Which DAG uses which asset, and how: ``schedule`` (consumer), ``outlet`` and ``inlet`` (of ``task_id``).
asset_reference = Table(
    "asset_reference",
    metadata,
    key(),
    Column("dag_id", Text, ForeignKey("dag.dag_id", ondelete="CASCADE"), nullable=False),
    Column("asset_id", BigInteger, ForeignKey("asset.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("task_id", Text),
    created(),
    CheckConstraint("kind IN ('schedule', 'outlet', 'inlet')", name="kind"),
    CheckConstraint("(kind = 'schedule') = (task_id IS NULL)", name="task_of_kind"),
    UniqueConstraint("dag_id", "asset_id", "kind", "task_id", postgresql_nulls_not_distinct=True),
    Index("ix_asset_reference_asset_id", "asset_id", "kind"),
)

dag_warning = Table(
    "dag_warning",
    metadata,
    Column("dag_id", Text, ForeignKey("dag.dag_id", ondelete="CASCADE"), primary_key=True),
    Column("warning_type", String(32), primary_key=True),
    Column("message", Text, nullable=False),
    created("timestamp"),
)
