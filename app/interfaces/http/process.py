"""The API server's process."""

from __future__ import annotations

import asyncio

import uvicorn

from app.interfaces.http.application import create_application
from app.processes.host import Host
from app.services.events import EventPoster

#: Longest a stopping server waits for requests under way, in seconds.
STOP_GRACE = 2
#: How often the process says that it is alive and serving, in seconds.
PROGRESS_INTERVAL = 1.0


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the host's stop event ends it."""

    def install_signal_handlers(self) -> None:
        return


async def serve(host: Host) -> None:
    """Serve the API until the host is asked to stop."""
    async with EventPoster.open(host.database, host.notifier, host.settings) as poster:
        config = uvicorn.Config(
            create_application(host, poster),
            host=host.settings.api_host,
            port=host.settings.api_port,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STOP_GRACE,
            # Names of proxies are a matter of trust: none is trusted unless told.
            proxy_headers=False,
            server_header=False,
        )
        server = _Server(config)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server._serve(), name="uvicorn")
            reporting = group.create_task(_report_progress(host, server), name="progress")
            stopping = group.create_task(host.stop.wait(), name="stop")
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            await serving
            reporting.cancel()
            stopping.cancel()


async def _report_progress(host: Host, server: uvicorn.Server) -> None:
    while True:
        if server.started:
            host.job.progress()
        await asyncio.sleep(PROGRESS_INTERVAL)
