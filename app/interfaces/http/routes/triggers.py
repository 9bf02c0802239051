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
from app.processes.host import Host
from app.services.trigger_limits import ask_for_retry
from app.store.listings import events as listed_events
from app.store.listings import triggers as listed

router = APIRouter(tags=["Trigger"])


@router.get("/triggers")
async def get_triggers(host: HostOf, page: PageOf, *, status: TriggerStatus | None = None) -> TriggerList:
    """List triggers with how they do. Their arguments are never shown."""
    async with host.database.transaction() as connection:
        found = await listed.list_triggers(connection, page, status=status)
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
        found = await listed.read_trigger(connection, trigger_id)
    if found is None:
        raise NotFound(what=f"trigger {trigger_id}")
    return TriggerAnswer.model_validate(found)


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
