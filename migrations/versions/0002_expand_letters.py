"""Payload schemas of watchers; dead letters that can be made events; the letter an event comes from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("asset_watcher", sa.Column("payload_schema", sa.Text(), nullable=True))
    op.add_column("dead_letter", sa.Column("payload", postgresql.JSON(), nullable=True))
    op.add_column("dead_letter", sa.Column("state", sa.String(length=16), server_default="held", nullable=False))
    op.add_column("dead_letter", sa.Column("requeued_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("dead_letter", sa.Column("event_ids", postgresql.ARRAY(sa.BigInteger()), nullable=True))
    op.create_check_constraint(op.f("ck_dead_letter_state"), "dead_letter", "state IN ('held', 'requeued')")
    op.create_check_constraint(
        op.f("ck_dead_letter_requeued"), "dead_letter", "(state IN ('requeued')) = (requeued_at IS NOT NULL)"
    )
    op.add_column("asset_event", sa.Column("requeued_from", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("asset_event", "requeued_from")
    op.drop_constraint(op.f("ck_dead_letter_requeued"), "dead_letter")
    op.drop_constraint(op.f("ck_dead_letter_state"), "dead_letter")
    op.drop_column("dead_letter", "event_ids")
    op.drop_column("dead_letter", "requeued_at")
    op.drop_column("dead_letter", "state")
    op.drop_column("dead_letter", "payload")
    op.drop_column("asset_watcher", "payload_schema")
