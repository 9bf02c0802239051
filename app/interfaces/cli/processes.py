"""`tidegate scheduler`, `dag-processor`, `triggerer`, `api-server`: one process each, for more than one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(root: typer.Typer) -> None:
    """Add the commands to the root."""
    root.command("scheduler")(scheduler)
    root.command("dag-processor")(dag_processor)
    root.command("triggerer")(triggerer)
    root.command("api-server")(api_server)


def scheduler() -> None:
    """Make runs of demand and schedules, and run their tasks with the local executor."""
    from app.interfaces.cli.running import run_process
    from app.processes.scheduler.process import serve

    run_process("scheduler", serve)


def dag_processor(
    dags: Annotated[
        Path | None, typer.Option("--dags", help="Pipelines folder (TIDEGATE_DAGS_FOLDER).", show_default=False)
    ] = None,
) -> None:
    """Watch the pipelines folder and bring its DAGs, assets and watchers into the database."""
    from app.interfaces.cli.running import run_process
    from app.processes.dag_processor.process import serve

    run_process("dag_processor", serve, dags_folder=dags)


def triggerer(
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Most triggers at once (TIDEGATE_TRIGGERER_CAPACITY).", show_default=False)
    ] = None,
    queues: Annotated[
        str | None,
        typer.Option(
            help="Only triggers of these queues (a,b); without it only those of no queue.", show_default=False
        ),
    ] = None,
    team_name: Annotated[
        str | None,
        typer.Option(help="Only triggers of this team; without it only those of no team.", show_default=False),
    ] = None,
) -> None:
    """Run the triggers of watchers."""
    from app.interfaces.cli.context import database_url
    from app.interfaces.cli.running import begin, run_loop
    from app.processes.triggerer.service import serve

    if team_name is not None and not team_name.strip():
        raise typer.BadParameter("a team needs a name", param_hint="--team-name")
    names = None if queues is None else _names(queues)
    settings = begin()
    work = serve(
        settings,
        database_url(settings),
        capacity=capacity,
        queues=names,
        team_name=team_name,
    )
    run_loop(work)


def api_server(
    host: Annotated[str | None, typer.Option(help="Address (TIDEGATE_API_HOST).", show_default=False)] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (TIDEGATE_API_PORT).", show_default=False)
    ] = None,
) -> None:
    """Serve the REST API."""
    from app.interfaces.cli.running import run_process
    from app.interfaces.http.process import serve

    run_process("api_server", serve, outlives_lease=True, api_host=host, api_port=port)


def _names(listed: str) -> list[str]:
    names = sorted({name.strip() for name in listed.split(",")})
    if not all(names):
        raise typer.BadParameter("name one queue or more, separated by commas", param_hint="--queues")
    return names
