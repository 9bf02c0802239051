"""Triggers and dead letters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.domain.states import TriggerStatus
from app.interfaces.http.dependencies import Caller, HostOf, PageOf
from app.interfaces.http.schemas import DeadLetterList, TriggerList
from app.store.listings import events as listed_events
from app.store.listings import triggers as listed

router = APIRouter(tags=["Trigger"])


@router.get("/triggers")
async def get_triggers(
    host: HostOf, page: PageOf, _caller: Caller, status: TriggerStatus | None = None
) -> TriggerList:
    """List triggers with how they do. Their arguments are never shown."""
    async with host.database.transaction() as connection:
        found = await listed.list_triggers(connection, page, status=status)
    return TriggerList.model_validate({"triggers": found.rows, "total_entries": found.total})


@router.get("/deadLetters")
async def get_dead_letters(
    host: HostOf,
    page: PageOf,
    _caller: Caller,
    trigger_id: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    code: str | None = None,
) -> DeadLetterList:
    """List messages that could not become events, newest first."""
    async with host.database.transaction() as connection:
        found = await listed_events.list_dead_letters(connection, page, trigger_id=trigger_id, code=code)
    return DeadLetterList.model_validate({"dead_letters": found.rows, "total_entries": found.total})
