"""Triggers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from app.domain.states import ShownTriggerStatus
from app.interfaces.http.dependencies import HostOf, PageOf
from app.interfaces.http.schemas.triggers import TriggerAnswer, TriggerList
from app.kernel.errors import NotFound
from app.processes.host import Host
from app.services.trigger_limits import ask_for_retry
from app.store.listings import triggers as listed

router = APIRouter(tags=["Trigger"])


@router.get("/triggers")
async def get_triggers(host: HostOf, page: PageOf, *, status: ShownTriggerStatus | None = None) -> TriggerList:
    """List triggers with how they do. Their arguments are never shown."""
    async with host.database.transaction() as connection:
        found = await listed.list_triggers(connection, page, lease=host.settings.lease_seconds, status=status)
    return TriggerList(triggers=[TriggerAnswer.model_validate(row) for row in found.rows], total_entries=found.total)


@router.get("/triggers/{trigger_id}")
async def get_trigger(host: HostOf, trigger_id: Annotated[int, Path(ge=0, lt=2**63)]) -> TriggerAnswer:
    """One trigger with how it does. Its arguments are never shown."""
    return await _trigger(host, trigger_id)


@router.post("/triggers/{trigger_id}/retry")
async def retry_trigger(host: HostOf, trigger_id: Annotated[int, Path(ge=0, lt=2**63)]) -> TriggerAnswer:
    """Start a trigger that backs off or is quarantined now, with its pauses short again; its triggerer hears at once.

    409 if it does not wait after a failure.
    """
    await ask_for_retry(host.database, host.notifier, trigger_id=trigger_id)
    return await _trigger(host, trigger_id)


async def _trigger(host: Host, trigger_id: int) -> TriggerAnswer:
    async with host.database.transaction() as connection:
        found = await listed.read_trigger(connection, trigger_id, lease=host.settings.lease_seconds)
    if found is None:
        raise NotFound(what=f"trigger {trigger_id}")
    return TriggerAnswer.model_validate(found)
