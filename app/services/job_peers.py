"""Waiting for the death of a peer: a session of its own waits for the session lock of the next process in the ring.

The processes of a type form a ring in order of their ids; each is waited for by one other, with one session a process
however many there are. A killed process loses its lock with its connection, and whoever waits gets it in milliseconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.kernel.settings import Settings
from app.store import jobs as statements
from app.store.database import Database, HotConnection
from app.store.errors import translate

#: Longest wait in one statement, in seconds: for so long a waiting statement keeps the server from cleaning up.
ROUND_SECONDS = 5.0


class PeerWatch:
    """Waits for the deaths of peers. Made by :meth:`open`; used by one task."""

    def __init__(self, session: HotConnection, *, job_type: str, job_id: int, settings: Settings) -> None:
        self._session = session
        self._job_type = job_type
        self._job_id = job_id
        self._settings = settings

    @classmethod
    @asynccontextmanager
    async def open(
        cls, database: Database, job_type: str, settings: Settings, *, job_id: int
    ) -> AsyncIterator[PeerWatch]:
        """A watch on the peers of the process ``job_id``.

        Raises :class:`app.store.errors.DatabaseUnavailable` if the server is away.
        """
        async with database.session() as session:
            yield cls(session, job_type=job_type, job_id=job_id, settings=settings)

    async def wait(self, *, within: float = ROUND_SECONDS) -> tuple[bool, list[int]]:
        """Wait up to ``within`` seconds for the death of the neighbour; whether there is one, and whose rows ended.

        A lock that this session saw held and finds free means that its holder's connection is gone, and the server did
        not take it: our session would have gone as well. Raises :class:`app.store.errors.DatabaseUnavailable`.
        """
        try:
            neighbour = await statements.neighbour_of(self._session, job_type=self._job_type, job_id=self._job_id)
            if neighbour is None:
                return False, []
            peer, is_held = neighbour
            await statements.await_job_lock(self._session, job_id=peer, within=within)
            ended = await statements.end_dead_jobs(
                self._session,
                job_type=self._job_type,
                lease=self._settings.lease_seconds,
                except_id=self._job_id,
                seen_alive=[peer] if is_held else [],
            )
        except Exception as error:
            ours = translate(error)
            if ours is error:
                raise
            raise ours from error
        return True, ended
