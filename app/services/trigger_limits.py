"""Triggers that wait for a limit, stored by their owner; and the wish of a person that one starts again now."""

from __future__ import annotations

from app.domain.states import TriggerStatus
from app.kernel.errors import AlreadyExists, NotFound
from app.store import trigger_limits as statements
from app.store.database import Database, HotConnection
from app.store.wakeups import Notifier


async def record_throttled(
    database: Database, *, owner_id: int, trigger_id: int, epoch: int, reason: str | None
) -> bool:
    """The trigger waits at its yield for ``reason``, or (None) no more. False: it is no longer ours."""

    async def work(hot: HotConnection) -> bool:
        return await statements.note_throttled(
            hot, owner_id=owner_id, trigger_id=trigger_id, epoch=epoch, reason=None if reason is None else reason[:2000]
        )

    return await database.retrying_hot(work)


class NothingToRetry(AlreadyExists):
    """Trigger {trigger_id} is {status}: only a trigger that backs off or is quarantined is started again by hand."""

    trigger_id: int
    status: str


async def ask_for_retry(database: Database, notifier: Notifier, *, trigger_id: int) -> None:
    """Have the trigger's owner start it now, with its pauses short again. Asking twice is the same as once.

    Raises :class:`NotFound`, and :class:`NothingToRetry` if it does not wait after a failure.
    """

    async def work(hot: HotConnection) -> str | None:
        return await statements.request_retry(hot, trigger_id=trigger_id)

    status = await database.retrying_hot(work)
    if status is None:
        raise NotFound(what=f"trigger {trigger_id}")
    if status not in (TriggerStatus.BACKING_OFF, TriggerStatus.QUARANTINED):
        raise NothingToRetry(trigger_id=trigger_id, status=status)
    notifier.poke("triggers")
