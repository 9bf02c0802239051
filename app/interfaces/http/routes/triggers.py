"""Triggers and dead letters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from app.domain.states import TriggerStatus
from app.interfaces.http.dependencies import HostOf, PageOf
from app.interfaces.http.schemas.triggers import (
    DeadLetterAnswer,
    DeadLetterDetails,
    DeadLetterList,
    TriggerAnswer,
    TriggerList,
)
from app.kernel.errors import NotFound
from app.store.listings import events as listed_events
from app.store.listings import triggers as listed

router = APIRouter(tags=["Trigger"])


@router.get("/triggers")
async def get_triggers(host: HostOf, page: PageOf, *, status: TriggerStatus | None = None) -> TriggerList:
    """List triggers with how they do. Their arguments are never shown."""
    async with host.database.transaction() as connection:
        found = await listed.list_triggers(connection, page, status=status)
    return TriggerList(triggers=[TriggerAnswer.model_validate(row) for row in found.rows], total_entries=found.total)


@router.get("/deadLetters")
async def get_dead_letters(
    host: HostOf,
    page: PageOf,
    *,
    trigger_id: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    asset_id: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    code: str | None = None,
) -> DeadLetterList:
    """List messages that could not become events, newest first."""
    async with host.database.transaction() as connection:
        found = await listed_events.list_dead_letters(
            connection, page, equal={"trigger_id": trigger_id, "asset_id": asset_id, "code": code}
        )
    letters = [DeadLetterAnswer.model_validate(row) for row in found.rows]
    return DeadLetterList(dead_letters=letters, total_entries=found.total)


@router.get("/deadLetters/{dead_letter_id}")
async def get_dead_letter(host: HostOf, dead_letter_id: Annotated[int, Path(ge=0, lt=2**63)]) -> DeadLetterDetails:
    """One message that could not become an event, with what was kept of it."""
    async with host.database.transaction() as connection:
        found = await listed_events.read_dead_letter(connection, dead_letter_id)
    if found is None:
        raise NotFound(what=f"dead letter {dead_letter_id}")
    return DeadLetterDetails.model_validate(found)
