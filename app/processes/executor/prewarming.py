"""Warm parents before they are needed: the first event after a deployment, or after a quiet night, is fast as well."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.kernel.telemetry import LimitedLog, get_logger
from app.processes.executor.parents import ParentGone, PipelineUnusable, WarmParents
from app.services import bundles
from app.store.database import Database

_log = get_logger("executor")

#: How long one import may hold up the others, in seconds.
PATIENCE = 30.0


class Prewarmer:
    """Keeps a warm parent for the code that new runs would have, up to ``limit``, one start after the other."""

    def __init__(self, *, database: Database, parents: WarmParents, folder: Path, limit: int) -> None:
        self._database = database
        self._parents = parents
        self._folder = folder
        self._limit = limit
        self._hopeless: set[str] = set()
        self._changed = asyncio.Event()
        self._changed.set()
        self._trouble = LimitedLog(_log)

    def look(self) -> None:
        """DAGs have changed, or may have."""
        self._changed.set()

    async def run_for_ever(self) -> None:
        """Look now and after each :meth:`look`. What cannot be warmed is left to the attempt that needs it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._warm_all()
            except Exception as error:  # noqa: BLE001 - what fails here is left to the attempts
                self._trouble.failed("prewarm", "warm parents could not be started early", error=str(error))
            else:
                self._trouble.recovered("prewarm", "warm parents are started early again")

    async def _warm_all(self) -> None:
        current = await bundles.current_code(self._database, limit=self._limit)
        self._parents.keep(current)
        for digest, entry in current:
            if self._changed.is_set():
                return
            if digest not in self._hopeless:
                await self._warm(digest, entry)

    async def _warm(self, digest: str, entry: str) -> None:
        root = await bundles.materialise(self._database, digest, self._folder)
        try:
            # Shielded: a process half started would be nobody's.
            parent = await asyncio.shield(self._parents.parent(digest=digest, root=root, entry=entry))
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(parent.ready)
        except (ParentGone, PipelineUnusable, TimeoutError) as error:
            # The code of a digest never changes.
            self._hopeless.add(digest)
            _log.warning("a pipeline file could not be imported early", action="prewarm_failed", error=str(error))
