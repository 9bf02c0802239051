"""Results for people (one table) and for programs (JSON)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.figures import Rate, Section, Spread
from tests.benchmarks.machine import Machine


def print_table(console: Console, sections: Sequence[Section]) -> None:
    """All sections as one table, with their notes below it."""
    table = Table(show_lines=False, header_style="bold")
    table.add_column("", overflow="fold")
    for column in ("p50 ms", "p95 ms", "p99 ms", "max ms", "per second"):
        table.add_column(column, justify="right")
    for section in sections:
        table.add_section()
        table.add_row(f"[bold]{section.title}[/bold]")
        for row in section.rows:
            table.add_row(f"  {row.name}", *_cells(row))
    console.print(table)
    for section in sections:
        for note in section.notes:
            console.print(f"{section.title} - {note}", style="dim", soft_wrap=True)


def _cells(row: Spread | Rate) -> list[str]:
    spread = row if isinstance(row, Spread) else row.spread
    values = (spread.p50, spread.p95, spread.p99, spread.largest) if spread else ()
    cells = [f"{value:,.1f}" for value in values] or [""] * 4
    return [*cells, f"{row.per_second:,.0f}" if isinstance(row, Rate) else ""]


def write_json(path: Path, machine: Machine, sections: Sequence[Section]) -> None:
    """Everything measured, with the machine and the moment."""
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": dataclasses.asdict(machine),
        "sections": [dataclasses.asdict(section) for section in sections],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
