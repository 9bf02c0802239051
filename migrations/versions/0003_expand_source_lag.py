"""How much waits at the source of a trigger, and why it counts as degraded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trigger", sa.Column("lag", sa.BigInteger()))
    op.add_column("trigger", sa.Column("lag_at", sa.DateTime(timezone=True)))
    op.add_column("trigger", sa.Column("degraded_reason", sa.Text()))
    op.add_column("trigger", sa.Column("degraded_since", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("trigger", "degraded_since")
    op.drop_column("trigger", "degraded_reason")
    op.drop_column("trigger", "lag_at")
    op.drop_column("trigger", "lag")
