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
) -> None:
    """Run the triggers of watchers."""
    from app.interfaces.cli.context import database_url
    from app.interfaces.cli.running import begin, run_loop
    from app.processes.triggerer.service import serve

    settings = begin()
    run_loop(serve(settings, database_url(settings), capacity=capacity))


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
