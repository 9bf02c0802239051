"""The migrations add up to the tables, go both ways, run once whoever starts them, and a wrong schema is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from app.kernel.errors import WrongSchema
from app.store import migrate
from app.store.errors import DatabaseUnavailable
from app.store.tables import metadata
from tests.ports import free_port
from tests.postgres import PostgresForTests

# What makes a schema, as the server itself writes it down.
CATALOG = """
SELECT 'column' AS kind, c.relname || '.' || a.attname AS name,
       format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attidentity::text || ' '
       || coalesce(pg_get_expr(d.adbin, d.adrelid), '') AS definition
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT 'index', tablename || '.' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT 'sequence', relname, '' FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace
"""


async def schema(url: str) -> dict[tuple[str, str], str]:
    connection = await asyncpg.connect(url)
    try:
        rows: list[Any] = await connection.fetch(CATALOG)
    finally:
        await connection.close()
    return {(row["kind"], row["name"]): row["definition"] for row in rows if "alembic_version" not in row["name"]}


async def test_migrations_add_up_to_the_tables(empty_database_url: str, database_url: str) -> None:
    engine = migrate.open_engine(empty_database_url)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    assert await schema(database_url) == await schema(empty_database_url), "the tables changed: write a migration"


async def test_up_down_up(empty_database_url: str) -> None:
    assert await migrate.current_revision(empty_database_url) is None
    assert await migrate.upgrade(empty_database_url) == migrate.needed_revision()
    first = await schema(empty_database_url)
    assert first
    await migrate.downgrade(empty_database_url, "base")
    assert await schema(empty_database_url) == {}
    assert await migrate.current_revision(empty_database_url) is None
    await migrate.upgrade(empty_database_url)
    assert await schema(empty_database_url) == first
    await migrate.check(empty_database_url)


async def test_processes_that_start_together_migrate_once(empty_database_url: str) -> None:
    reached = await asyncio.gather(*(migrate.upgrade(empty_database_url) for _ in range(4)))
    assert set(reached) == {migrate.needed_revision()}
    await migrate.check(empty_database_url)


async def test_an_empty_database_is_refused_with_the_remedy(empty_database_url: str) -> None:
    with pytest.raises(WrongSchema, match="tidegate db migrate") as caught:
        await migrate.check(empty_database_url)
    assert caught.value.ids["found"] == "none"


async def test_a_later_schema_is_refused_by_both(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE alembic_version SET version_num = 'zzzz'")
    await connection.close()
    for attempt in (migrate.check, migrate.upgrade):
        with pytest.raises(WrongSchema, match="later"):
            await attempt(database_url)


async def test_a_server_that_is_away_is_told_as_such(postgres: PostgresForTests) -> None:
    with pytest.raises(DatabaseUnavailable):
        await migrate.check(f"postgresql://x@127.0.0.1:{free_port()}/x")


def test_the_steps_are_named_by_their_revisions() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrate.script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()][::-1] == migrate._revisions()
    assert scripts.get_current_head() == migrate.needed_revision()
