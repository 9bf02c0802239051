"""``make bench``: latency from message to user code, and throughput, beside the raw rate of the same database."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tests.benchmarks import backlog, idle, latency, raw, storing, takeover, triggering
from tests.benchmarks.figures import Section
from tests.benchmarks.machine import Machine
from tests.benchmarks.report import print_table, write_json
from tests.postgres import PostgresForTests, running_postgres

_COLUMNS = (
    SpinnerColumn(),
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)
NAMES = ("raw", "rest", "kafka", "sqs", "triggers", "storing", "backlog", "idle", "takeover")


class _Bar:
    """The progress bar, on standard error."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, name: str) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=None)

    def told(self, title: str, done: int, total: int) -> None:
        assert self._task is not None
        self._progress.update(self._task, description=title, completed=done, total=total)


def options(arguments: list[str]) -> argparse.Namespace:
    """What a person chose."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(NAMES), help=f"some of {','.join(NAMES)}; all by default")
    parser.add_argument("--events", type=int, default=200, help="messages of each latency measurement")
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second of each latency measurement")
    parser.add_argument("--backlog", type=int, default=1_000, help="events of the backlog")
    parser.add_argument("--triggers", type=int, default=50_000, help="idle timers in one triggerer")
    parser.add_argument("--kills", type=int, default=15, help="triggerers killed; a third as many are frozen")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each throughput measurement")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    chosen = parser.parse_args(arguments)
    chosen.only = [name.strip() for name in chosen.only.split(",") if name.strip()]
    if unknown := [name for name in chosen.only if name not in NAMES]:
        parser.error(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(NAMES)}")
    counts = chosen.events, chosen.backlog, chosen.triggers, chosen.kills
    if min(counts) < 1 or chosen.rate <= 0 or chosen.seconds <= 0:
        parser.error("numbers must be positive")
    return chosen


def benchmarks(chosen: argparse.Namespace, bar: _Bar) -> dict[str, Callable[[], Awaitable[Section]]]:
    """Every benchmark by its name; each is measured on its own, nothing else running."""

    def of_source(name: str) -> Callable[[], Awaitable[Section]]:
        return lambda: latency.measure(name, events=chosen.events, rate=chosen.rate, progress=bar.told)

    return {
        **{name: of_source(name) for name in ("rest", "kafka", "sqs")},
        "backlog": lambda: backlog.measure(events=chosen.backlog, progress=bar.told),
    }


def on_server(
    chosen: argparse.Namespace, postgres: PostgresForTests, bar: _Bar
) -> dict[str, Callable[[], Awaitable[Section]]]:
    """Benchmarks of parts, on a server of their own that waits for the disk as well."""

    async def commits() -> Section:
        name = await postgres.create(empty=True)
        section = await raw.measure(postgres.url(name), seconds=chosen.seconds)
        await postgres.drop(name)
        return section

    return {
        "raw": commits,
        "triggers": lambda: triggering.measure(postgres, seconds=chosen.seconds),
        "storing": lambda: storing.measure(postgres, seconds=chosen.seconds),
        "takeover": lambda: takeover.measure(postgres, rounds=chosen.kills, progress=bar.told),
        "idle": lambda: idle.measure(
            postgres, triggers=chosen.triggers, seconds=10 * chosen.seconds, progress=bar.told
        ),
    }


def run(chosen: argparse.Namespace, bar: _Bar) -> list[Section]:
    """Measure what was chosen, one after the other."""
    sections = []
    for name in NAMES:
        if name not in chosen.only:
            continue
        bar.begin(name)
        if name in ("raw", "triggers", "storing", "idle", "takeover"):
            with running_postgres(fsync=True) as postgres:
                sections.append(uvloop.run(_whole(on_server(chosen, postgres, bar)[name])))
        else:
            sections.append(uvloop.run(_whole(benchmarks(chosen, bar)[name])))
    return sections


async def _whole(measure: Callable[[], Awaitable[Section]]) -> Section:
    return await measure()


def main(arguments: list[str]) -> int:
    """Measure, print, and write. Returns the exit status."""
    chosen = options(arguments)
    machine = Machine.here()
    console = Console(highlight=False)
    console.print(machine.told(), soft_wrap=True)
    if machine.busy:
        console.print("[yellow]The machine is busy: read ratios, not milliseconds.[/yellow]")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        sections = run(chosen, _Bar(progress))
    print_table(console, sections)
    if chosen.json is not None:
        write_json(chosen.json, machine, sections)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
