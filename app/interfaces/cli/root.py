"""The root command: options every command has, and how errors end a command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from app.interfaces.cli import assets, configuration, dags, database, dead_letters, processes, standalone, triggers
from app.kernel.errors import TidegateError
from app.kernel.version import program_version
from watchers.errors import WatcherError

root = typer.Typer(
    name="tidegate",
    help="Event-driven asset scheduling: when this message arrives, run that DAG.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
root.add_typer(dags.commands, name="dags")
root.add_typer(assets.commands, name="assets")
root.add_typer(triggers.commands, name="triggers")
root.add_typer(dead_letters.commands, name="dead-letters")
root.add_typer(database.commands, name="db")
root.add_typer(configuration.commands, name="config")
standalone.register(root)
processes.register(root)


@root.command("version")
def show_version() -> None:
    """Print the version."""
    typer.echo(program_version())


@root.callback()
def common(
    home: Annotated[
        Path | None,
        typer.Option("--home", help="Folder of everything Tidegate keeps itself (TIDEGATE_HOME).", show_default=False),
    ] = None,
) -> None:
    """Options before the command."""
    if home is not None:
        os.environ["TIDEGATE_HOME"] = str(home)


def run() -> None:
    """Run the command line and end the process; an expected error is one clear line and exit status 1."""
    try:
        root(prog_name="tidegate")
    except (TidegateError, WatcherError) as error:
        _tell(error)
    except ExceptionGroup as group:
        expected, others = group.split((TidegateError, WatcherError))
        if expected is None or others is not None:
            raise
        _tell(_first(expected))


def _tell(error: BaseException) -> NoReturn:
    Console(stderr=True, highlight=False, markup=False).print(f"error: {error}", soft_wrap=True)
    sys.exit(1)


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
