"""Write migrations/versions/0001_initial.py anew from the tables: ``python -m tests.initial_migration``.

Only until the first release; from then on a change of the schema is a migration of its own (see CONTRIBUTING.md).
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from sqlalchemy import Connection, ForeignKeyConstraint

from app.store.migrate import open_engine
from app.store.tables import metadata
from tests.postgres import running_postgres

TARGET = Path(__file__).resolve().parent.parent / "migrations" / "versions" / "0001_initial.py"
HEAD = '''"""The first schema. Written by `python -m tests.initial_migration` until the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
'''


def render(connection: Connection) -> str:
    """The whole module: what is missing in an empty database."""
    context = MigrationContext.configure(connection)
    script = produce_migrations(context, metadata)
    assert script.upgrade_ops is not None
    assert script.downgrade_ops is not None
    up, down = render_python_code(script.upgrade_ops), render_python_code(script.downgrade_ops)
    # alembic neither leaves out nor adds later what must wait for its table; both are done here.
    up = re.sub(r"^.*use_alter=True\),?\n", "", _tidy(up), flags=re.MULTILINE)
    later = [
        constraint
        for table in metadata.sorted_tables
        for constraint in table.constraints
        if isinstance(constraint, ForeignKeyConstraint) and constraint.use_alter
    ]
    added = "".join(
        f"    op.create_foreign_key({str(each.name)!r}, {each.table.name!r}, {each.referred_table.name!r}, "
        f"{each.column_keys!r}, {[element.column.name for element in each.elements]!r})\n"
        for each in later
    )
    removed = "".join(f"    op.drop_constraint({str(each.name)!r}, {each.table.name!r})\n" for each in later)
    return f"{HEAD}    {up.lstrip()}\n{added}\n\ndef downgrade() -> None:\n{removed}    {_tidy(down).lstrip()}\n"


def _tidy(code: str) -> str:
    code = re.sub(r"postgresql\.JSON\([^)]*\(\)\)", "postgresql.JSON()", code)
    return re.sub(r"^\s*# ###.*\n?", "", code, flags=re.MULTILINE)


async def read(url: str) -> str:
    engine = open_engine(url)
    async with engine.connect() as connection:
        text = await connection.run_sync(render)
    await engine.dispose()
    return text


def main() -> None:
    with running_postgres(template=False) as postgres:
        TARGET.write_text(asyncio.run(read(postgres.server.dsn)))
    ruff = Path(sys.executable).with_name("ruff")
    subprocess.run([ruff, "check", "--quiet", "--fix", TARGET], check=False)
    subprocess.run([ruff, "format", "--quiet", TARGET], check=True)


if __name__ == "__main__":
    main()
