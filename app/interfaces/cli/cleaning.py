"""`tidegate db clean`: remove what is old, batch by batch, with progress."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from app.interfaces.cli.context import Session, with_session
from app.interfaces.cli.output import Format, show_rows
from app.interfaces.cli.values import moment

if TYPE_CHECKING:
    from app.domain.retention import Kind
    from app.services.retention import Batch

LOGS = "logs"
_AGE = re.compile(r"(\d+)([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def clean(
    before: Annotated[
        str,
        typer.Option(
            "--before",
            help="Older than this: a date (its start in UTC), a moment with offset, or an age (30d, 12h, 5m).",
        ),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", help="Only these kinds, with commas or repeated; by default all.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; say how much could go now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=10, max=50_000, help="Rows looked at in one transaction.", show_default=False),
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.TABLE,
) -> None:
    """Remove what is old, in small transactions beside the running service; Ctrl-C is safe, running it again goes on.

    Never a pending event, a run that has not ended, an event that a kept run names, or an identity inside its
    de-duplication period. Logs are those of this machine's home. Kinds: runs, events, dead_letters, identities,
    idempotency_keys, state_changes, jobs, import_errors, versions, bundles, logs.
    """
    limit = _moment_or_age(before)
    kinds, with_logs = _kinds(tables)
    if not (dry_run or yes):
        named = ", ".join([*kinds, *([LOGS] if with_logs else [])])
        typer.confirm(f"Remove what is older than {limit.isoformat(timespec='seconds')} of: {named}?", abort=True)
    try:
        rows = with_session(
            lambda session: _clean(
                session, limit, kinds=kinds, with_logs=with_logs, dry_run=dry_run, batch_size=batch_size
            )
        )
    except KeyboardInterrupt:
        typer.echo("Stopped. What was removed stays removed; run the command again to go on.", err=True)
        raise typer.Exit(130) from None
    show_rows(rows, ("kind", "removable" if dry_run else "removed"), output)


async def _clean(
    session: Session,
    limit: datetime,
    *,
    kinds: list[Kind],
    with_logs: bool,
    dry_run: bool,
    batch_size: int | None,
) -> list[dict[str, object]]:
    from app.processes.home_retention import ages_before, clean_home
    from app.processes.retention import clean as clean_all
    from app.processes.retention import cleanings
    from app.services.retention import server_time

    now = await server_time(session.database)
    if limit > now:
        raise typer.BadParameter("it lies in the future", param_hint="--before")
    work = cleanings(dict.fromkeys(kinds, limit), now=now, settings=session.settings, size=batch_size, dry_run=dry_run)
    with _Progress() as progress:
        counts: dict[str, int] = {
            kind.value: count for kind, count in (await clean_all(session.database, work, told=progress.told)).items()
        }
        if with_logs:
            home = session.settings.home
            counts[LOGS] = await clean_home(session.database, home, ages=ages_before(limit), dry_run=dry_run)
    word = "removable" if dry_run else "removed"
    return [{"kind": kind, word: count} for kind, count in counts.items()]


class _Progress:
    """A line for each kind on standard error, where that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._shown = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[seen]:,} looked at, {task.fields[removed]:,} old and unneeded"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._shown.disable = not self._shown.console.is_terminal
        self._counts: dict[Kind, tuple[int, int]] = {}
        self._lines: dict[Kind, int] = {}

    def __enter__(self) -> _Progress:
        self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.stop()

    def told(self, kind: Kind, batch: Batch) -> None:
        seen, removed = self._counts.get(kind, (0, 0))
        seen, removed = self._counts[kind] = seen + batch.seen, removed + batch.removed
        if kind not in self._lines:
            self._lines[kind] = self._shown.add_task(kind.value, total=None, seen=0, removed=0)
        ended = {"total": 1, "completed": 1} if batch.next is None else {}
        self._shown.update(self._lines[kind], seen=seen, removed=removed, **ended)  # type: ignore[arg-type]


def _kinds(tables: list[str] | None) -> tuple[list[Kind], bool]:
    from app.domain.retention import Kind

    names = [name.strip() for part in tables or [] for name in part.split(",") if name.strip()]
    if not names:
        return list(Kind), True
    wrong = [name for name in names if name != LOGS and name not in list(Kind)]
    if wrong:
        known = ", ".join([*Kind, LOGS])
        raise typer.BadParameter(f"{wrong[0]!r} is no kind; kinds are {known}", param_hint="--tables")
    return [kind for kind in Kind if kind.value in names], LOGS in names


def _moment_or_age(text: str) -> datetime:
    age = _AGE.fullmatch(text.strip())
    if age is not None:
        try:
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        except OverflowError:
            raise typer.BadParameter(f"{text!r} is too long ago", param_hint="--before") from None
    return moment(f"{text}T00:00:00+00:00" if _DATE.fullmatch(text.strip()) else text)
