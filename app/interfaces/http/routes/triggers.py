"""Triggers."""

from __future__ import annotations

from fastapi import APIRouter

from app.domain.states import ShownTriggerStatus
from app.interfaces.http.dependencies import HostOf, PageOf
from app.interfaces.http.schemas.triggers import TriggerAnswer, TriggerList
from app.store.listings import triggers as listed

router = APIRouter(tags=["Trigger"])


@router.get("/triggers")
async def get_triggers(host: HostOf, page: PageOf, *, status: ShownTriggerStatus | None = None) -> TriggerList:
    """List triggers with how they do. Their arguments are never shown."""
    async with host.database.transaction() as connection:
        found = await listed.list_triggers(connection, page, lease=host.settings.lease_seconds, status=status)
    return TriggerList(triggers=[TriggerAnswer.model_validate(row) for row in found.rows], total_entries=found.total)
