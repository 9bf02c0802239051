"""`tidegate scheduler`, `dag-processor`, `triggerer`, `api-server`: one process each, for more than one machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from app.interfaces.cli.context import database_url
from app.kernel.children import PARENT_VARIABLE, die_with_parent
from app.kernel.settings import Settings, load_settings
from app.kernel.telemetry import configure_logging
from app.processes.host import Serve, host


def register(root: typer.Typer) -> None:
    """Add the commands to the root."""
    root.command("scheduler")(scheduler)
    root.command("dag-processor")(dag_processor)
    root.command("triggerer")(triggerer)
    root.command("api-server")(api_server)


def scheduler() -> None:
    """Make runs of demand and schedules, and run their tasks with the local executor."""
    from app.processes.scheduler.process import serve

    run_process("scheduler", serve)


def dag_processor(
    dags: Annotated[
        Path | None, typer.Option("--dags", help="Pipelines folder (TIDEGATE_DAGS_FOLDER).", show_default=False)
    ] = None,
) -> None:
    """Watch the pipelines folder and bring its DAGs, assets and watchers into the database."""
    from app.processes.dag_processor.process import serve

    run_process("dag_processor", serve, dags_folder=dags)


def triggerer(
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Most triggers at once (TIDEGATE_TRIGGERER_CAPACITY).", show_default=False)
    ] = None,
) -> None:
    """Run the triggers of watchers."""
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
    from app.interfaces.http.process import serve

    run_process("api_server", serve, api_host=host, api_port=port)


def run_process(job_type: str, serve: Serve, **overrides: object) -> None:
    """Run one process of the service until it is asked to end."""
    settings = begin(**overrides)
    run_loop(host(settings, database_url(settings), job_type=job_type, serve=serve))


def begin(**overrides: object) -> Settings:
    """What every process does first; returns the settings with the options given on the command line."""
    if os.environ.get(PARENT_VARIABLE):
        # A member of `standalone`: end in order when that is gone.
        die_with_parent(signal.SIGTERM)
        del os.environ[PARENT_VARIABLE]
    settings = overridden(load_settings(), **overrides)
    configure_logging(level=settings.log_level, style=settings.log_format)
    return settings


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` on a loop of the main thread."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def overridden(settings: Settings, **overrides: object) -> Settings:
    """``settings`` with the options that were given on the command line, validated like the rest."""
    given = {name: value for name, value in overrides.items() if value is not None}
    if not given:
        return settings
    return Settings.model_validate({**settings.model_dump(), **given})
