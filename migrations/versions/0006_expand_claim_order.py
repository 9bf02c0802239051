"""Free triggers in the order in which they are claimed: many that one file declared have the same moment."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_WHERE = "status = 'unassigned' AND wanted"


def upgrade() -> None:
    op.drop_index("ix_trigger_unassigned", table_name="trigger", postgresql_where=_WHERE)
    op.create_index("ix_trigger_unassigned", "trigger", ["created_date", "id"], unique=False, postgresql_where=_WHERE)


def downgrade() -> None:
    op.drop_index("ix_trigger_unassigned", table_name="trigger", postgresql_where=_WHERE)
    op.create_index("ix_trigger_unassigned", "trigger", ["created_date"], unique=False, postgresql_where=_WHERE)
