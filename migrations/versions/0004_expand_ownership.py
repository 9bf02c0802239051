"""What is known of a blocker goes along with its trigger, whoever owns it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trigger", sa.Column("runs_alone", sa.Boolean(), server_default="false", nullable=False))
    op.add_column("trigger", sa.Column("strikes", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("trigger", "strikes")
    op.drop_column("trigger", "runs_alone")
