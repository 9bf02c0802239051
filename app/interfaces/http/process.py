"""The API server's process."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from app.interfaces.http.application import create_application
from app.kernel.errors import TidegateError
from app.kernel.telemetry import get_logger
from app.processes.host import Host
from app.services.events import EventPoster
from app.services.jobs import JobSession
from app.store.errors import StoreError

#: Longest a stopping server waits for requests under way, in seconds.
STOP_GRACE = 2
#: How often the process says that it is alive and serving, in seconds.
PROGRESS_INTERVAL = 1.0
BACKLOG = 2048

_log = get_logger("api")


class AddressTaken(TidegateError):
    """The API cannot listen on {host}:{port}: {reason}. Choose another address with TIDEGATE_API_HOST and
    TIDEGATE_API_PORT."""


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the host's stop event ends it."""

    async def run_until(self, stop: asyncio.Event, listening: socket.socket) -> None:
        """Serve on the socket until ``stop`` is set."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve([listening]), name="uvicorn")
            stopping = group.create_task(stop.wait(), name="stop")
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self.should_exit = True
            await asyncio.wait({serving})
            stopping.cancel()


async def serve(host: Host) -> None:
    """Serve the API until the host is asked to stop. Raises :class:`AddressTaken`."""
    with _listening(host.settings.api_host, host.settings.api_port) as listening:
        async with EventPoster.open(host.database, host.notifier) as poster:
            config = uvicorn.Config(
                create_application(host, poster),
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=STOP_GRACE,
                # Names of proxies are a matter of trust: none is trusted unless told.
                proxy_headers=False,
                server_header=False,
            )
            server = _Server(config)
            address, port = listening.getsockname()[:2]
            _log.info("listening", action="listening", host=address, port=port)
            async with asyncio.TaskGroup() as group:
                reporting = group.create_task(_stay_registered(host, server), name="progress")
                await server.run_until(host.stop, listening)
                reporting.cancel()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise AddressTaken(host=host, port=port, reason=error.strerror or error) from error


async def _stay_registered(host: Host, server: uvicorn.Server) -> None:
    """Report progress; after a lease was lost (this machine stood still for long), go on under a new one."""
    await _report_progress(host.job, server)
    while True:
        try:
            async with JobSession.open(host.database, "api_server", host.settings, patient=True) as job:
                await _report_progress(job, server)
        except StoreError:
            await asyncio.sleep(PROGRESS_INTERVAL)


async def _report_progress(job: JobSession, server: uvicorn.Server) -> None:
    """Until the lease is lost."""
    while not job.lease_lost.is_set():
        if server.started:
            job.progress()
        try:
            await asyncio.wait_for(job.lease_lost.wait(), PROGRESS_INTERVAL)
        except TimeoutError:
            continue
