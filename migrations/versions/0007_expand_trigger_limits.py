"""Why a trigger waits at its yield, and the wish that one that failed starts again now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trigger", sa.Column("throttled_reason", sa.Text()))
    op.add_column("trigger", sa.Column("throttled_since", sa.DateTime(timezone=True)))
    op.add_column("trigger", sa.Column("retry_requested_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("trigger", "retry_requested_at")
    op.drop_column("trigger", "throttled_since")
    op.drop_column("trigger", "throttled_reason")
