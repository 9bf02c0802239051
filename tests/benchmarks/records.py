"""What a deployment's database holds about the way of each message, read past the product."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from app.kernel.settings import load_settings
from app.store.embedded import running_dsn
from tests.acceptance.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """The moments of one message, in seconds since the epoch, all by the clock of one machine."""

    number: int
    sent: float
    #: Start of the transaction that stored the event, and start of the planning that made its run.
    stored: float
    made: float
    #: Start of the transaction in which the executor claimed the task.
    claimed: float
    #: First line of user code.
    first_line: float
    ended: float


_JOURNEYS = """
    SELECT x.value::text AS told, e."timestamp" AS stored, r.queued_at AS made, t.queued_at AS claimed,
           r.end_date AS ended
    FROM dag_run r
    JOIN task_instance t ON t.dag_run_id = r.id
    JOIN xcom x ON x.dag_run_id = r.id AND x.key = 'return_value'
    JOIN dag_run_event c ON c.dag_run_id = r.id
    JOIN asset_event e ON e.id = c.event_id
    WHERE r.state = 'success' ORDER BY r.id
"""


class Records:
    """A connection to the database of a deployment."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def of(cls, deployment: Deployment) -> AsyncIterator[Records]:
        """Connect; the connection is closed with the block."""
        connection = await asyncpg.connect(dsn_of(deployment))
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def ended(self) -> int:
        """How many runs have ended."""
        return int(await self._connection.fetchval("SELECT count(*) FROM dag_run WHERE state IN ('success', 'failed')"))

    async def dag_is_ready(self) -> bool:
        """Whether a DAG is stored and each trigger runs."""
        error = await self._connection.fetchval("SELECT message FROM import_error")
        if error is not None:
            raise RuntimeError(f"the pipeline file does not load: {error}")
        return bool(
            await self._connection.fetchval(
                """
                SELECT EXISTS (SELECT FROM dag WHERE current_version_id IS NOT NULL)
                   AND NOT EXISTS (SELECT FROM trigger WHERE status <> 'running')
                """
            )
        )

    async def journeys(self) -> list[Journey]:
        """The way of each message whose run succeeded, in the order of the runs."""
        return [_journey(row) for row in await self._connection.fetch(_JOURNEYS)]


def dsn_of(deployment: Deployment) -> str:
    """URL of the embedded database of a running deployment."""
    found = running_dsn(load_settings(home=deployment.home))
    assert found is not None, "the deployment runs no embedded PostgreSQL"
    return found


def _journey(row: Any) -> Journey:
    told = json.loads(row["told"])
    return Journey(
        number=told["n"],
        sent=told["sent"] / 1e9,
        stored=_seconds(row["stored"]),
        made=_seconds(row["made"]),
        claimed=_seconds(row["claimed"]),
        first_line=told["first_line"] / 1e9,
        ended=_seconds(row["ended"]),
    )


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
