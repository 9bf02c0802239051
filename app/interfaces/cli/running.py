"""Running one process of the service from the command line."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop

from app.interfaces.cli.context import database_url
from app.kernel import crash_points
from app.kernel.children import PARENT_VARIABLE, die_with_parent
from app.kernel.settings import Settings, load_settings, unknown_variables, with_overrides
from app.kernel.telemetry import configure_logging, get_logger
from app.processes.host import Serve, host

_log = get_logger("settings")


def run_process(job_type: str, serve: Serve, *, outlives_lease: bool = False, **overrides: object) -> None:
    """Run one process of the service until it is asked to end."""
    settings = begin(**overrides)
    work = host(settings, database_url(settings), job_type=job_type, serve=serve, outlives_lease=outlives_lease)
    run_loop(work)


def begin(**overrides: object) -> Settings:
    """What every process does first; returns the settings with the options given on the command line."""
    is_member = bool(os.environ.get(PARENT_VARIABLE))
    if is_member:
        # A member of `standalone`: end in order when that is gone.
        die_with_parent(signal.SIGTERM)
        del os.environ[PARENT_VARIABLE]
    settings = with_overrides(load_settings(), **overrides)
    configure_logging(level=settings.log_level, style=settings.log_format)
    if crash_points.IS_ARMED:
        _log.warning(f"{crash_points.VARIABLE} is set: files can kill this process", action="crash_points_armed")
    if not is_member:
        warn_of_unknown_variables()
    return settings


def warn_of_unknown_variables() -> None:
    """Name the ``TIDEGATE_*`` variables that change nothing: a typing mistake must not stay unnoticed."""
    for name, meant in unknown_variables().items():
        hint = f"; did you mean {meant}?" if meant else ""
        _log.warning(f"there is no setting {name}{hint}", action="unknown_setting", variable=name)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` on a loop of the main thread."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)
