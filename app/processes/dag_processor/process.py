"""The dag processor as a process of its own."""

from __future__ import annotations

import asyncio

from app.kernel.telemetry import get_logger
from app.processes.dag_processor.processor import DagProcessor, prepare_folder
from app.processes.endings import end_tasks
from app.processes.host import Host
from app.services.secrets import load_keys

_log = get_logger("dag_processor")


async def serve(host: Host) -> None:
    """Process the pipelines folder until the host is stopped, or ends because its lease is lost.

    The folder under the home is made if it is not there; one that was named must exist
    (:class:`app.processes.dag_processor.processor.PipelinesFolderMissing`).
    """
    folder = prepare_folder(host.settings, create=host.settings.dags_folder is None)
    _log.info("pipeline files are read", action="folder_watched", folder=str(folder))
    processor = DagProcessor(
        host.database, host.notifier, host.settings, job=host.job, encrypt=load_keys(host.settings).encrypt
    )
    endings = [asyncio.create_task(event.wait()) for event in (host.stop, host.job.lease_lost)]
    working = asyncio.create_task(processor.run(), name="dag-processor")
    try:
        await asyncio.wait([working, *endings], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
        if host.job.lease_lost.is_set():
            _log.error("the lease is lost; ending", action="lease_lost", job_id=host.job.id)
    finally:
        await end_tasks((working, *endings))
