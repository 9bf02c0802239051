"""`tidegate standalone`: everything on one machine with one command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def register(root: typer.Typer) -> None:
    """Add the command to the root."""
    root.command("standalone")(standalone)


def standalone(
    dags: Annotated[
        Path | None, typer.Option("--dags", help="Pipelines folder (TIDEGATE_DAGS_FOLDER).", show_default=False)
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the API (TIDEGATE_API_HOST).", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the API (TIDEGATE_API_PORT).", show_default=False)
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", help="Folder Tidegate keeps itself (TIDEGATE_HOME).", show_default=False)
    ] = None,
) -> None:
    """Start database, scheduler, dag processor, triggerer and API; Ctrl-C stops them all."""
    from app.interfaces.cli.standalone_checks import usable_port
    from app.kernel.home import HomeLock
    from app.kernel.settings import load_settings, with_overrides
    from app.kernel.telemetry import configure_logging

    settings = with_overrides(load_settings(), dags_folder=dags, api_host=host, api_port=port, home=home)
    configure_logging(level=settings.log_level, style=settings.log_format)
    with HomeLock(settings.home):
        port = usable_port(settings.api_host, settings.api_port)
        # Only now: these imports take seconds on a busy machine.
        from app.interfaces.cli.running import warn_of_unknown_variables
        from app.interfaces.cli.standalone_run import Standalone

        warn_of_unknown_variables()
        asyncio.run(Standalone(settings, port=port).run())
