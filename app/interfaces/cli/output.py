"""How commands show rows: a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table


class Format(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Format) -> None:
    """Print ``columns`` of ``rows``."""
    if output is Format.JSON:
        json.dump([{name: row.get(name) for name in columns} for row in rows], sys.stdout, default=_plain, indent=2)
        sys.stdout.write("\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    # Cut to the terminal's width only where there is a terminal; a pipe gets whole rows.
    console = Console(width=None if sys.stdout.isatty() else 400, highlight=False, markup=False)
    console.print(table)


def show_details(row: Mapping[str, Any], names: Sequence[str], output: Format) -> None:
    """Print ``names`` of one thing, each on a line of its own; as JSON an object."""
    if output is Format.JSON:
        json.dump({name: row.get(name) for name in names}, sys.stdout, default=_plain, indent=2)
        sys.stdout.write("\n")
        return
    show_rows([{"name": name, "value": row.get(name)} for name in names], ["name", "value"], output)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat(timespec="seconds")
        case list() | tuple():
            return ", ".join(_cell(part) for part in value)
        case dict():
            return json.dumps(value, default=str)
    return str(value)
