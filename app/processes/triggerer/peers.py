"""The death of another triggerer is seen at once, and its triggers are freed for whoever has room."""

from __future__ import annotations

import asyncio
import time

from app.kernel.settings import Settings
from app.kernel.telemetry import LimitedLog, get_logger
from app.services import jobs
from app.services.job_peers import PeerWatch
from app.store.database import Database
from app.store.errors import StoreError
from app.store.wakeups import Notifier

#: Pause before looking again for a peer when there is none, or when the last look failed, in seconds.
_PAUSE = 1.0
#: A wait that came to nothing sooner than this (in seconds) is followed by a pause: its lock is free, and that is no
#: proof yet.
_SHORT_WAIT = 0.2

_log = get_logger("triggerer")


class Peers:
    """Waits for deaths as long as a lease lasts."""

    def __init__(self, database: Database, notifier: Notifier, settings: Settings, *, job_id: int) -> None:
        self._database = database
        self._notifier = notifier
        self._settings = settings
        self._job_id = job_id
        self._trouble = LimitedLog(_log)

    async def watch_for_ever(self) -> None:
        """Wait, free what the dead owned, and wait again; a session that breaks is opened anew."""
        while True:
            try:
                async with PeerWatch.open(self._database, "triggerer", self._settings, job_id=self._job_id) as watch:
                    while True:
                        await self._watch(watch)
            except (StoreError, TimeoutError, OSError) as error:
                self._trouble.failed("peers", f"peers cannot be watched: {error}", action="peers_unwatched")
            except Exception as error:  # noqa: BLE001 — peers are looked at each second as well
                self._trouble.failed("peers", f"peers: {error!r}", action="peers_failed", exc_info=error)
            await asyncio.sleep(_PAUSE)

    async def _watch(self, watch: PeerWatch) -> None:
        began = time.monotonic()
        has_peer, ended = await watch.wait()
        self._trouble.recovered("peers", "peers are watched again", action="peers_watched")
        if ended:
            await jobs.fence_dead_owners(self._database, self._notifier, self._settings, self_id=self._job_id)
            # It may have died while it claimed: what it was about to own is free, and nobody else says so.
            self._notifier.poke("triggers")
            _log.warning(f"triggerers ended without a word: {ended}", action="peers_died", job_ids=ended)
        elif not has_peer:
            await asyncio.sleep(_PAUSE)
        elif time.monotonic() - began < _SHORT_WAIT:
            await asyncio.sleep(_SHORT_WAIT)
