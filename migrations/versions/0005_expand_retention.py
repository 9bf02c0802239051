"""One leader of housekeeping, and what removing old rows in small batches needs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leadership",
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["job.id"], name=op.f("fk_leadership_owner_id")),
        sa.PrimaryKeyConstraint("role", name=op.f("pk_leadership")),
    )
    op.add_column("trigger", sa.Column("acknowledges", sa.Boolean(), server_default="false", nullable=False))
    op.create_index("ix_event_identity_created_at", "event_identity", ["created_at"])
    op.create_index("ix_idempotency_key_created_at", "idempotency_key", ["created_at"])
    op.create_index("ix_dead_letter_created_at", "dead_letter", ["created_at", "id"])
    op.create_index("ix_dag_run_ended", "dag_run", ["end_date", "id"], postgresql_where="end_date IS NOT NULL")
    op.create_index("ix_dag_run_dag_version_id", "dag_run", ["dag_version_id"])
    op.create_index("ix_state_change_trigger_at", "state_change", ["at", "id"], postgresql_where="subject = 'trigger'")
    op.create_index(
        "ix_trigger_task_instance_id",
        "trigger",
        ["task_instance_id"],
        postgresql_where="task_instance_id IS NOT NULL",
    )


def downgrade() -> None:
    op.drop_index("ix_trigger_task_instance_id", table_name="trigger")
    op.drop_index("ix_state_change_trigger_at", table_name="state_change")
    op.drop_index("ix_dag_run_dag_version_id", table_name="dag_run")
    op.drop_index("ix_dag_run_ended", table_name="dag_run")
    op.drop_index("ix_dead_letter_created_at", table_name="dead_letter")
    op.drop_index("ix_idempotency_key_created_at", table_name="idempotency_key")
    op.drop_index("ix_event_identity_created_at", table_name="event_identity")
    op.drop_column("trigger", "acknowledges")
    op.drop_table("leadership")
