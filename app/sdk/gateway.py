"""How a running task reaches the outside."""

from __future__ import annotations

from typing import Protocol

from app.domain.orders import EventValue
from app.domain.specs import AssetKey


class TaskGateway(Protocol):
    """Blocking questions of a task process to its executor.

    Connections and variables come from ``watchers.connections``.
    XComs that the task pushes are no question: they travel with the outcome, in whose transaction they are stored.
    """

    def xcom_pull(self, *, task_ids: list[str], key: str) -> list[tuple[str, str]]:
        """The XComs of this run under ``key`` as ``(task id, canonical text)``; missing ones are left out."""

    def inlet_events(
        self,
        asset: AssetKey,
        *,
        after: str | None = None,
        before: str | None = None,
        ascending: bool = True,
        limit: int | None = None,
    ) -> list[EventValue]:
        """The events of ``asset``, oldest first unless told otherwise. Moments are ISO 8601 with offset."""
