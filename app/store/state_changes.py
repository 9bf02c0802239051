"""The record of every change of state of runs, task instances and triggers.

Most changes are appended by the very statement that carries them out (a ``WITH … INSERT INTO state_change``), so that
neither can be without the other. Reading them is done here.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from app.store.database import HotConnection


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of state. ``from_state`` is None for the first one recorded."""

    from_state: str | None
    to_state: str
    try_number: int | None
    reason: str | None
    at: datetime


async def read_changes(hot: HotConnection, *, subject: str, subject_id: int) -> list[StateChange]:
    """The changes of one ``run``, ``task`` or ``trigger``, oldest first."""
    rows = await hot.fetch(
        """
        SELECT from_state, to_state, try_number, reason, at FROM state_change
        WHERE subject = $1 AND subject_id = $2 ORDER BY id
        """,
        subject,
        subject_id,
    )
    return [StateChange(**dict(row)) for row in rows]
