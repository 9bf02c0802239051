"""`tidegate dags`: list, trigger, pause, and try out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from app.interfaces.cli.context import Session, every_row, with_session
from app.interfaces.cli.output import Format, show_rows
from app.interfaces.cli.values import json_object, json_objects, moment

commands = typer.Typer(help="DAGs: list, trigger, pause, try out.", no_args_is_help=True)

Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]
Conf = Annotated[
    dict[str, Any] | None,
    typer.Option("--conf", "-c", parser=json_object, metavar="JSON", help="Configuration of the run: a JSON object."),
]
LogicalDate = Annotated[
    datetime | None,
    typer.Option(
        "--logical-date", "-l", parser=moment, metavar="MOMENT", help="Logical date: 2026-01-31T12:00:00+00:00."
    ),
]
DagIds = Annotated[list[str], typer.Argument(metavar="DAG_ID...", help="The DAGs.")]
_COLUMNS = ["dag_id", "paused", "active", "schedule", "file", "next_run", "warnings"]


@commands.command("list")
def list_dags(
    pattern: Annotated[
        str | None, typer.Option(help="Only ids that contain this; % and _ as in SQL, | for alternatives.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Retired DAGs too.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List DAGs."""
    from app.store.listings import dags as listed

    async def work(session: Session) -> list[Mapping[str, Any]]:
        async with session.database.transaction() as connection:
            return await every_row(
                lambda paging: listed.list_dags(connection, paging, dag_id_pattern=pattern, only_active=not every)
            )

    show_rows([_shown(row) for row in with_session(work)], _COLUMNS, output)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    spec = row["spec"] or {}
    return {
        "dag_id": row["dag_id"],
        "paused": row["is_paused"],
        "active": row["is_active"],
        "schedule": (spec.get("schedule") or {}).get("summary", ""),
        "file": row["file_path"],
        "next_run": row["next_run_at"],
        "warnings": [warning["message"] for warning in row["warnings"]],
    }


@commands.command("trigger")
def trigger(
    dag_id: Annotated[str, typer.Argument(help="The DAG.")],
    run_id: Annotated[str | None, typer.Option("--run-id", "-r", help="Id of the run.", show_default="made up")] = None,
    conf: Conf = None,
    logical_date: LogicalDate = None,
    note: Annotated[str | None, typer.Option(help="A note about the run.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a run by hand. It starts when the DAG is not paused and has room for it."""
    from app.services import runs

    request = runs.ManualRun(
        dag_id=dag_id, triggered_by="cli", run_id=run_id, conf=conf, logical_date=logical_date, note=note
    )

    async def work(session: Session) -> str:
        return (await runs.create_manual(session.database, session.notifier, request)).run_id

    made = with_session(work)
    show_rows([{"dag_id": dag_id, "run_id": made, "state": "queued"}], ["dag_id", "run_id", "state"], output)


@commands.command("pause")
def pause(dag_ids: DagIds) -> None:
    """Pause DAGs: no new run or task of theirs starts, and watchers that only they consume stop.

    Their messages stay in the broker. Events that arrive otherwise are stored but skipped for a paused DAG, for good;
    those that waited before stay.
    """
    _set_paused(dag_ids, paused=True)


@commands.command("unpause")
def unpause(dag_ids: DagIds) -> None:
    """Let DAGs go on, in order, with what waits for them since before the pause.

    Events that arrived during the pause are not run. Watchers start again with what the broker kept.
    """
    _set_paused(dag_ids, paused=False)


def _set_paused(dag_ids: list[str], *, paused: bool) -> None:
    from app.services import dags

    word = "paused" if paused else "unpaused"

    async def work(session: Session) -> None:
        for dag_id in dag_ids:
            changed = await dags.set_paused(session.database, session.notifier, dag_id=dag_id, paused=paused)
            typer.echo(f"{dag_id} is {word} now" if changed else f"{dag_id} was {word} already")

    with_session(work)


@commands.command("test")
def try_out(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, readable=True, metavar="FILE", help="The pipeline file.")
    ],
    dag_id: Annotated[str | None, typer.Argument(help="Which of its DAGs, if it has several.")] = None,
    events: Annotated[
        list[Any] | None,
        typer.Option(
            "--event",
            parser=json_objects,
            metavar="JSON",
            help='Cause of the run: the extra of an event of each asset of the schedule, or {"asset": name or uri, '
            '"extra": {...}} for one asset. May be repeated, or an array.',
        ),
    ] = None,
    conf: Conf = None,
    logical_date: LogicalDate = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dags",
            exists=True,
            file_okay=False,
            help="Pipelines folder (TIDEGATE_DAGS_FOLDER), where a file below it finds its modules.",
        ),
    ] = None,
) -> None:
    """Run one DAG of a file in this process, without services; nothing is stored. Exit 0 if the run succeeded."""
    from app.domain.states import RunState
    from app.sdk.errors import DeclarationError, PipelineError
    from app.sdk.local_run import run_dag_locally

    causes = [event for group in events or () for event in group]
    try:
        result = run_dag_locally(
            file, dag_id, root=_root_of(file, folder), event=causes or None, conf=conf, logical_date=logical_date
        )
    except (PipelineError, DeclarationError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    show_rows(
        [
            {"task_id": task.task_id, "state": task.state, "tries": task.tries, "error": task.error}
            for task in result.tasks.values()
        ],
        ["task_id", "state", "tries", "error"],
        Format.TABLE,
    )
    typer.echo(f"{result.run_id}: {result.state} in {result.duration:.2f} s")
    if result.state is not RunState.SUCCESS:
        raise typer.Exit(1)


def _root_of(file: Path, given: Path | None) -> Path | None:
    """The pipelines folder if the file is in it: its modules are then found as in a deployment."""
    from app.kernel.settings import load_settings

    folder = (given or load_settings().pipelines_folder).resolve()
    if file.resolve().is_relative_to(folder):
        return folder
    if given is not None:
        raise typer.BadParameter(f"{file} is not in {given}", param_hint="--dags")
    return None
