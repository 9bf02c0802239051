"""`tidegate triggers lint`: calls in trigger classes that would stop all triggers of a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_FOUND = 1
_UNREADABLE = 2


class Findings(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"


def lint(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Python files, or folders of them.")],
    form: Annotated[
        Findings, typer.Option("--format", help="A line each (file:line:column code message), or a JSON list.")
    ] = Findings.TEXT,
) -> None:
    """Find calls that block the event loop in trigger classes: what runs there runs beside all other triggers.

    Read, not imported: run() and cleanup() of trigger classes, and the functions of the same file that they call. A
    comment "# tidegate: allow-blocking" on the line accepts a call. Exit status: 0 clean, 1 something was found, 2 a
    file cannot be read.
    """
    from app.sdk.blocking_calls import BlockingCall, Unreadable, check_file

    found: list[tuple[Path, BlockingCall]] = []
    is_unreadable = False
    for path in dict.fromkeys(each for given in paths for each in _files(given)):
        try:
            found += ((path, each) for each in check_file(path))
        except Unreadable as error:
            is_unreadable = True
            typer.echo(f"error: {path}: {error}", err=True)
    if form is Findings.JSON:
        typer.echo(json.dumps([_row(path, each) for path, each in found], indent=2))
    else:
        for path, each in found:
            typer.echo(f"{path}:{each.line}:{each.column} {each.code} {each.message}")
    if is_unreadable or found:
        raise typer.Exit(_UNREADABLE if is_unreadable else _FOUND)


def _files(given: Path) -> Iterator[Path]:
    """The file itself, or the Python files below a folder; what begins with a dot there is passed over."""
    if not given.is_dir():
        yield given
        return
    for path in sorted(given.rglob("*.py")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(given).parts):
            yield path


def _row(path: Path, finding: object) -> dict[str, object]:
    names = ("line", "column", "code", "message", "trigger")
    return {"file": str(path), **{name: getattr(finding, name) for name in names}}
