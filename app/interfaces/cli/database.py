"""`tidegate db`: the schema, and removing what is old."""

from __future__ import annotations

import asyncio

import typer

from app.interfaces.cli import cleaning
from app.interfaces.cli.context import database_url

commands = typer.Typer(help="The database's schema, and removing what is old.", no_args_is_help=True)
commands.command("clean")(cleaning.clean)


@commands.command("migrate")
def migrate() -> None:
    """Bring the database's schema to this version's. Safe to run at any time and from several machines at once."""
    from app.kernel.settings import load_settings
    from app.store.migrate import upgrade

    asyncio.run(upgrade(database_url(load_settings())))
    typer.echo("The schema is up to date.")


@commands.command("check")
def check_schema() -> None:
    """Exit 0 if the database answers and its schema fits this version, else say the remedy and exit 1."""
    from app.kernel.settings import load_settings
    from app.store.migrate import check

    asyncio.run(check(database_url(load_settings())))
    typer.echo("The database answers and its schema fits this version.")
