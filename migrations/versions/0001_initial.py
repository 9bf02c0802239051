"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "asset",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("extra", postgresql.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_asset")),
        sa.UniqueConstraint("name", "uri", name=op.f("uq_asset_name_uri")),
    )
    op.create_index("uq_asset_active_name", "asset", ["name"], unique=True, postgresql_where="is_active")
    op.create_index("uq_asset_active_uri", "asset", ["uri"], unique=True, postgresql_where="is_active")
    op.create_table(
        "bundle",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_bundle")),
    )
    op.create_table(
        "dag",
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("file_path", sa.Text(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("missing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("current_version_id", sa.BigInteger(), nullable=True),
        sa.Column("max_active_runs", sa.Integer(), nullable=False),
        sa.Column("max_active_tasks", sa.Integer(), nullable=False),
        sa.Column("next_run_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_logical_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_arrival", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_group", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("has_demand", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_parsed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("max_active_runs > 0 AND max_active_tasks > 0", name=op.f("ck_dag_limits")),
        sa.PrimaryKeyConstraint("dag_id", name=op.f("pk_dag")),
    )
    op.create_index("ix_dag_has_demand", "dag", ["dag_id"], unique=False, postgresql_where="has_demand")
    op.create_index(
        "ix_dag_next_run_at", "dag", ["next_run_at"], unique=False, postgresql_where="next_run_at IS NOT NULL"
    )
    op.create_table(
        "deployment",
        sa.Column("id", sa.SmallInteger(), server_default="1", autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_deployment_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment")),
    )
    op.create_table(
        "event_body",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("extra", postgresql.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_body")),
    )
    op.create_table(
        "idempotency_key",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_digest", sa.LargeBinary(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_key")),
    )
    op.create_table(
        "import_error",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("stack_trace", sa.Text(), nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_import_error")),
        sa.UniqueConstraint("filename", name=op.f("uq_import_error_filename")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("job_type", sa.String(length=32), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=True),
        sa.Column("queues", sa.ARRAY(sa.Text()), nullable=True),
        sa.Column("team_name", sa.Text(), nullable=True),
        sa.Column("details", postgresql.JSON(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("latest_heartbeat", sa.DateTime(timezone=True), nullable=False),
        sa.Column("latest_progress", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "job_type IN ('scheduler', 'triggerer', 'dag_processor', 'api_server')", name=op.f("ck_job_job_type")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index("ix_job_alive", "job", ["job_type"], unique=False, postgresql_where="ended_at IS NULL")
    op.create_table(
        "state_change",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("subject", sa.String(length=8), nullable=False),
        sa.Column("subject_id", sa.BigInteger(), nullable=False),
        sa.Column("from_state", sa.String(length=24), nullable=True),
        sa.Column("to_state", sa.String(length=24), nullable=False),
        sa.Column("try_number", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("subject IN ('run', 'task', 'trigger')", name=op.f("ck_state_change_subject")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_state_change")),
    )
    op.create_index("ix_state_change_subject", "state_change", ["subject", "subject_id", "id"], unique=False)
    op.create_table(
        "asset_event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("asset_id", sa.BigInteger(), nullable=False),
        sa.Column("body_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(length=8), nullable=False),
        sa.Column("trigger_id", sa.BigInteger(), nullable=True),
        sa.Column("watcher_name", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("source_dag_id", sa.Text(), nullable=True),
        sa.Column("source_task_id", sa.Text(), nullable=True),
        sa.Column("source_run_id", sa.Text(), nullable=True),
        sa.Column("source_map_index", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("origin IN ('trigger', 'rest', 'task')", name=op.f("ck_asset_event_origin")),
        sa.ForeignKeyConstraint(["asset_id"], ["asset.id"], name=op.f("fk_asset_event_asset_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["body_id"], ["event_body.id"], name=op.f("fk_asset_event_body_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_asset_event")),
    )
    op.create_index("ix_asset_event_asset_id", "asset_event", ["asset_id", "id"], unique=False)
    op.create_index("ix_asset_event_body_id", "asset_event", ["body_id"], unique=False)
    op.create_index("ix_asset_event_timestamp", "asset_event", ["timestamp", "id"], unique=False)
    op.create_table(
        "asset_reference",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("asset_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(kind = 'schedule') = (task_id IS NULL)", name=op.f("ck_asset_reference_task_of_kind")),
        sa.CheckConstraint("kind IN ('schedule', 'outlet', 'inlet')", name=op.f("ck_asset_reference_kind")),
        sa.ForeignKeyConstraint(
            ["asset_id"], ["asset.id"], name=op.f("fk_asset_reference_asset_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["dag_id"], ["dag.dag_id"], name=op.f("fk_asset_reference_dag_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_asset_reference")),
        sa.UniqueConstraint(
            "dag_id",
            "asset_id",
            "kind",
            "task_id",
            name=op.f("uq_asset_reference_dag_id_asset_id_kind_task_id"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index("ix_asset_reference_asset_id", "asset_reference", ["asset_id", "kind"], unique=False)
    op.create_table(
        "bundle_file",
        sa.Column("bundle_digest", sa.String(length=64), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["bundle_digest"], ["bundle.digest"], name=op.f("fk_bundle_file_bundle_digest"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("bundle_digest", "path", name=op.f("pk_bundle_file")),
    )
    op.create_table(
        "dag_file",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("bundle_digest", sa.String(length=64), nullable=True),
        sa.Column("last_parsed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("parse_duration", sa.Float(), nullable=True),
        sa.Column("missing_since", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["bundle_digest"], ["bundle.digest"], name=op.f("fk_dag_file_bundle_digest")),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_dag_file")),
    )
    op.create_table(
        "dag_version",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("version_number", sa.Integer(), nullable=False),
        sa.Column("bundle_digest", sa.String(length=64), nullable=False),
        sa.Column("spec_digest", sa.String(length=64), nullable=False),
        sa.Column("spec", postgresql.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["bundle_digest"], ["bundle.digest"], name=op.f("fk_dag_version_bundle_digest")),
        sa.ForeignKeyConstraint(["dag_id"], ["dag.dag_id"], name=op.f("fk_dag_version_dag_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dag_version")),
        sa.UniqueConstraint("dag_id", "version_number", name=op.f("uq_dag_version_dag_id_version_number")),
    )
    op.create_table(
        "dag_warning",
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("warning_type", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["dag_id"], ["dag.dag_id"], name=op.f("fk_dag_warning_dag_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("dag_id", "warning_type", name=op.f("pk_dag_warning")),
    )
    op.create_table(
        "dead_letter",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("trigger_id", sa.BigInteger(), nullable=True),
        sa.Column("asset_id", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("identity", sa.LargeBinary(), nullable=True),
        sa.Column("code", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=True),
        sa.Column("raw_size", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["asset_id"], ["asset.id"], name=op.f("fk_dead_letter_asset_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letter")),
    )
    op.create_index("ix_dead_letter_trigger_id", "dead_letter", ["trigger_id", "id"], unique=False)
    op.create_index(
        "uq_dead_letter_identity", "dead_letter", ["identity"], unique=True, postgresql_where="identity IS NOT NULL"
    )
    op.create_table(
        "demand_group",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('collecting', 'ready', 'started')", name=op.f("ck_demand_group_state")),
        sa.ForeignKeyConstraint(["dag_id"], ["dag.dag_id"], name=op.f("fk_demand_group_dag_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_demand_group")),
        sa.UniqueConstraint("dag_id", "position", name=op.f("uq_demand_group_dag_id_position")),
    )
    op.create_index(
        "ix_demand_group_waiting",
        "demand_group",
        ["dag_id", "position"],
        unique=False,
        postgresql_where="state <> 'started'",
    )
    op.create_index(
        "uq_demand_group_collecting", "demand_group", ["dag_id"], unique=True, postgresql_where="state = 'collecting'"
    )
    op.create_table(
        "event_identity",
        sa.Column("asset_id", sa.BigInteger(), nullable=False),
        sa.Column("identity", sa.LargeBinary(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["asset_id"], ["asset.id"], name=op.f("fk_event_identity_asset_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("asset_id", "identity", name=op.f("pk_event_identity")),
    )
    op.create_table(
        "dag_run",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("dag_version_id", sa.BigInteger(), nullable=False),
        sa.Column("run_type", sa.String(length=24), nullable=False),
        sa.Column("triggered_by", sa.String(length=16), nullable=False),
        sa.Column("triggering_user_name", sa.Text(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("group_id", sa.BigInteger(), nullable=True),
        sa.Column("logical_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("data_interval_start", sa.DateTime(timezone=True), nullable=True),
        sa.Column("data_interval_end", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_after", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("start_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_scheduling_decision", sa.DateTime(timezone=True), nullable=True),
        sa.Column("conf", postgresql.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('failed', 'success')) = (end_date IS NOT NULL)", name=op.f("ck_dag_run_finished")
        ),
        sa.CheckConstraint(
            "run_type IN ('scheduled', 'manual', 'asset_triggered', 'backfill')", name=op.f("ck_dag_run_run_type")
        ),
        sa.CheckConstraint("state IN ('queued', 'running', 'success', 'failed')", name=op.f("ck_dag_run_state")),
        sa.ForeignKeyConstraint(["dag_id"], ["dag.dag_id"], name=op.f("fk_dag_run_dag_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["dag_version_id"], ["dag_version.id"], name=op.f("fk_dag_run_dag_version_id")),
        sa.ForeignKeyConstraint(["group_id"], ["demand_group.id"], name=op.f("fk_dag_run_group_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dag_run")),
        sa.UniqueConstraint("dag_id", "run_id", name=op.f("uq_dag_run_dag_id_run_id")),
        sa.UniqueConstraint("group_id", name=op.f("uq_dag_run_group_id")),
        sa.UniqueConstraint("id", "dag_id", name=op.f("uq_dag_run_id_dag_id")),
    )
    op.create_index(
        "ix_dag_run_active",
        "dag_run",
        ["dag_id", "id"],
        unique=False,
        postgresql_where="state IN ('queued', 'running')",
    )
    op.create_index(
        "uq_dag_run_logical_date",
        "dag_run",
        ["dag_id", "logical_date"],
        unique=True,
        postgresql_where="logical_date IS NOT NULL AND run_type = 'scheduled'",
    )
    op.create_table(
        "demand",
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("asset_id", sa.BigInteger(), nullable=False),
        sa.Column("arrival", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("group_id", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "(state IN ('grouped', 'consumed')) = (group_id IS NOT NULL)", name=op.f("ck_demand_grouped")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'grouped', 'consumed', 'skipped', 'dropped')", name=op.f("ck_demand_state")
        ),
        sa.ForeignKeyConstraint(["asset_id"], ["asset.id"], name=op.f("fk_demand_asset_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["dag_id"], ["dag.dag_id"], name=op.f("fk_demand_dag_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["event_id"], ["asset_event.id"], name=op.f("fk_demand_event_id")),
        sa.ForeignKeyConstraint(["group_id"], ["demand_group.id"], name=op.f("fk_demand_group_id")),
        sa.PrimaryKeyConstraint("dag_id", "event_id", name=op.f("pk_demand")),
        sa.UniqueConstraint("dag_id", "arrival", name=op.f("uq_demand_dag_id_arrival")),
    )
    op.create_index("ix_demand_event_id", "demand", ["event_id"], unique=False)
    op.create_index("ix_demand_group_id", "demand", ["group_id"], unique=False, postgresql_where="group_id IS NOT NULL")
    op.create_index(
        "ix_demand_pending", "demand", ["dag_id", "arrival"], unique=False, postgresql_where="state = 'pending'"
    )
    op.create_table(
        "dag_run_event",
        sa.Column("dag_run_id", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("triggering", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dag_run_id", "dag_id"],
            ["dag_run.id", "dag_run.dag_id"],
            name=op.f("fk_dag_run_event_dag_run_id_dag_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["event_id"], ["asset_event.id"], name=op.f("fk_dag_run_event_event_id")),
        sa.PrimaryKeyConstraint("dag_run_id", "event_id", name=op.f("pk_dag_run_event")),
        sa.UniqueConstraint("dag_id", "event_id", name=op.f("uq_dag_run_event_dag_id_event_id")),
    )
    op.create_index("ix_dag_run_event_event_id", "dag_run_event", ["event_id"], unique=False)
    op.create_table(
        "task_instance",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("dag_run_id", sa.BigInteger(), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("map_index", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("state", sa.String(length=24), nullable=False),
        sa.Column("try_number", sa.Integer(), server_default="1", nullable=False),
        sa.Column("max_tries", sa.Integer(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("pool_slots", sa.Integer(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority_weight", sa.Integer(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("scheduled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("start_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hostname", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "(state IN ('failed', 'removed', 'skipped', 'success', 'upstream_failed')) = (end_date IS NOT NULL)",
            name=op.f("ck_task_instance_finished"),
        ),
        sa.CheckConstraint(
            "(state IN ('queued', 'running')) = (owner_id IS NOT NULL)", name=op.f("ck_task_instance_owned")
        ),
        sa.CheckConstraint(
            "(state IN ('up_for_retry', 'up_for_reschedule')) = (next_attempt_at IS NOT NULL)",
            name=op.f("ck_task_instance_waits"),
        ),
        sa.CheckConstraint(
            "state IN ('none', 'scheduled', 'queued', 'running', 'deferred', 'up_for_retry', 'up_for_reschedule', 'success', 'failed', 'skipped', 'upstream_failed', 'removed')",
            name=op.f("ck_task_instance_state"),
        ),
        sa.ForeignKeyConstraint(
            ["dag_run_id"], ["dag_run.id"], name=op.f("fk_task_instance_dag_run_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["job.id"], name=op.f("fk_task_instance_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_instance")),
        sa.UniqueConstraint(
            "dag_run_id", "task_id", "map_index", name=op.f("uq_task_instance_dag_run_id_task_id_map_index")
        ),
    )
    op.create_index(
        "ix_task_instance_active",
        "task_instance",
        ["dag_id"],
        unique=False,
        postgresql_where="state IN ('queued', 'running', 'deferred')",
    )
    op.create_index(
        "ix_task_instance_next_attempt",
        "task_instance",
        ["next_attempt_at"],
        unique=False,
        postgresql_where="next_attempt_at IS NOT NULL",
    )
    op.create_index(
        "ix_task_instance_owner_id",
        "task_instance",
        ["owner_id"],
        unique=False,
        postgresql_where="owner_id IS NOT NULL",
    )
    op.create_index(
        "ix_task_instance_scheduled",
        "task_instance",
        ["priority_weight", "scheduled_at"],
        unique=False,
        postgresql_where="state = 'scheduled'",
    )
    op.create_table(
        "xcom",
        sa.Column("dag_run_id", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("map_index", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", postgresql.JSON(), nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["dag_run_id"], ["dag_run.id"], name=op.f("fk_xcom_dag_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("dag_run_id", "task_id", "map_index", "key", name=op.f("pk_xcom")),
    )
    op.create_table(
        "trigger",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("classpath", sa.Text(), nullable=False),
        sa.Column("kwargs", sa.LargeBinary(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=True),
        sa.Column("team_name", sa.Text(), nullable=True),
        sa.Column("bundle_digest", sa.String(length=64), nullable=True),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("start_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("restarts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("events", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("duplicates", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("refused", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_event_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("last_error_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("consecutive_errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("task_instance_id", sa.BigInteger(), nullable=True),
        sa.Column("timeout_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_date", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(kind = 'task') = (task_instance_id IS NOT NULL)", name=op.f("ck_trigger_waiting_task")),
        sa.CheckConstraint("(status = 'unassigned') = (owner_id IS NULL)", name=op.f("ck_trigger_owned")),
        sa.CheckConstraint("kind IN ('asset', 'task')", name=op.f("ck_trigger_kind")),
        sa.CheckConstraint(
            "status IN ('unassigned', 'running', 'backing_off', 'quarantined')", name=op.f("ck_trigger_status")
        ),
        sa.ForeignKeyConstraint(["bundle_digest"], ["bundle.digest"], name=op.f("fk_trigger_bundle_digest")),
        sa.ForeignKeyConstraint(["owner_id"], ["job.id"], name=op.f("fk_trigger_owner_id")),
        sa.ForeignKeyConstraint(
            ["task_instance_id"], ["task_instance.id"], name=op.f("fk_trigger_task_instance_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trigger")),
    )
    op.create_index(
        "ix_trigger_owner_id", "trigger", ["owner_id"], unique=False, postgresql_where="owner_id IS NOT NULL"
    )
    op.create_index(
        "ix_trigger_unassigned",
        "trigger",
        ["created_date"],
        unique=False,
        postgresql_where="status = 'unassigned' AND wanted",
    )
    op.create_index(
        "uq_trigger_asset_identity", "trigger", ["identity"], unique=True, postgresql_where="kind = 'asset'"
    )
    op.create_table(
        "asset_watcher",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("asset_id", sa.BigInteger(), nullable=False),
        sa.Column("trigger_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("when_expression", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["asset_id"], ["asset.id"], name=op.f("fk_asset_watcher_asset_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trigger_id"], ["trigger.id"], name=op.f("fk_asset_watcher_trigger_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_asset_watcher")),
        sa.UniqueConstraint("asset_id", "name", "trigger_id", name=op.f("uq_asset_watcher_asset_id_name_trigger_id")),
    )
    op.create_index("ix_asset_watcher_trigger_id", "asset_watcher", ["trigger_id"], unique=False)
    op.create_table(
        "source_position",
        sa.Column("trigger_id", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("position", postgresql.JSON(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["trigger_id"], ["trigger.id"], name=op.f("fk_source_position_trigger_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trigger_id", "source", "lane", name=op.f("pk_source_position")),
    )
    op.create_table(
        "asset_watcher_source",
        sa.Column("watcher_id", sa.BigInteger(), nullable=False),
        sa.Column("file_path", sa.Text(), nullable=False),
        sa.Column("bundle_digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["bundle_digest"], ["bundle.digest"], name=op.f("fk_asset_watcher_source_bundle_digest")
        ),
        sa.ForeignKeyConstraint(
            ["watcher_id"], ["asset_watcher.id"], name=op.f("fk_asset_watcher_source_watcher_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("watcher_id", "file_path", name=op.f("pk_asset_watcher_source")),
    )

    op.create_foreign_key("fk_dag_current_version_id", "dag", "dag_version", ["current_version_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint("fk_dag_current_version_id", "dag")
    op.drop_table("asset_watcher_source")
    op.drop_table("source_position")
    op.drop_index("ix_asset_watcher_trigger_id", table_name="asset_watcher")
    op.drop_table("asset_watcher")
    op.drop_index("uq_trigger_asset_identity", table_name="trigger", postgresql_where="kind = 'asset'")
    op.drop_index("ix_trigger_unassigned", table_name="trigger", postgresql_where="status = 'unassigned' AND wanted")
    op.drop_index("ix_trigger_owner_id", table_name="trigger", postgresql_where="owner_id IS NOT NULL")
    op.drop_table("trigger")
    op.drop_table("xcom")
    op.drop_index("ix_task_instance_scheduled", table_name="task_instance", postgresql_where="state = 'scheduled'")
    op.drop_index("ix_task_instance_owner_id", table_name="task_instance", postgresql_where="owner_id IS NOT NULL")
    op.drop_index(
        "ix_task_instance_next_attempt", table_name="task_instance", postgresql_where="next_attempt_at IS NOT NULL"
    )
    op.drop_index(
        "ix_task_instance_active",
        table_name="task_instance",
        postgresql_where="state IN ('queued', 'running', 'deferred')",
    )
    op.drop_table("task_instance")
    op.drop_index("ix_dag_run_event_event_id", table_name="dag_run_event")
    op.drop_table("dag_run_event")
    op.drop_index("ix_demand_pending", table_name="demand", postgresql_where="state = 'pending'")
    op.drop_index("ix_demand_group_id", table_name="demand", postgresql_where="group_id IS NOT NULL")
    op.drop_index("ix_demand_event_id", table_name="demand")
    op.drop_table("demand")
    op.drop_index(
        "uq_dag_run_logical_date",
        table_name="dag_run",
        postgresql_where="logical_date IS NOT NULL AND run_type = 'scheduled'",
    )
    op.drop_index("ix_dag_run_active", table_name="dag_run", postgresql_where="state IN ('queued', 'running')")
    op.drop_table("dag_run")
    op.drop_table("event_identity")
    op.drop_index("uq_demand_group_collecting", table_name="demand_group", postgresql_where="state = 'collecting'")
    op.drop_index("ix_demand_group_waiting", table_name="demand_group", postgresql_where="state <> 'started'")
    op.drop_table("demand_group")
    op.drop_index("uq_dead_letter_identity", table_name="dead_letter", postgresql_where="identity IS NOT NULL")
    op.drop_index("ix_dead_letter_trigger_id", table_name="dead_letter")
    op.drop_table("dead_letter")
    op.drop_table("dag_warning")
    op.drop_table("dag_version")
    op.drop_table("dag_file")
    op.drop_table("bundle_file")
    op.drop_index("ix_asset_reference_asset_id", table_name="asset_reference")
    op.drop_table("asset_reference")
    op.drop_index("ix_asset_event_timestamp", table_name="asset_event")
    op.drop_index("ix_asset_event_body_id", table_name="asset_event")
    op.drop_index("ix_asset_event_asset_id", table_name="asset_event")
    op.drop_table("asset_event")
    op.drop_index("ix_state_change_subject", table_name="state_change")
    op.drop_table("state_change")
    op.drop_index("ix_job_alive", table_name="job", postgresql_where="ended_at IS NULL")
    op.drop_table("job")
    op.drop_table("import_error")
    op.drop_table("idempotency_key")
    op.drop_table("event_body")
    op.drop_table("deployment")
    op.drop_index("ix_dag_next_run_at", table_name="dag", postgresql_where="next_run_at IS NOT NULL")
    op.drop_index("ix_dag_has_demand", table_name="dag", postgresql_where="has_demand")
    op.drop_table("dag")
    op.drop_table("bundle")
    op.drop_index("uq_asset_active_uri", table_name="asset", postgresql_where="is_active")
    op.drop_index("uq_asset_active_name", table_name="asset", postgresql_where="is_active")
    op.drop_table("asset")
