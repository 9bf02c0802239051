"""Messages that could not become events: look, make events of them after all, delete."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from app.domain.json_values import payload_text
from app.domain.letter_content import shown_letter
from app.domain.states import DeadLetterState
from app.interfaces.http.dependencies import HostOf, PageOf, RequeuerOf
from app.interfaces.http.errors import refusal
from app.interfaces.http.schemas.dead_letters import (
    BulkAnswer,
    BulkBody,
    Chosen,
    DeadLetterAnswer,
    DeadLetterDetails,
    DeadLetterList,
    LetterOutcome,
    RequeueBody,
    RequeuedAnswer,
)
from app.kernel.errors import NotFound
from app.processes.requeueing import Checker, Requeuer
from app.services import dead_letters
from app.store.listings import dead_letters as listed

#: How long a bulk request goes on to further letters, in seconds.
BULK_SECONDS = 60.0

router = APIRouter(prefix="/deadLetters", tags=["DeadLetter"])
LetterId = Annotated[int, Path(ge=0, lt=2**63)]


@router.get("")
async def get_dead_letters(host: HostOf, page: PageOf, chosen: Annotated[Chosen, Depends(Chosen)]) -> DeadLetterList:
    """List messages that could not become events, newest first."""
    async with host.database.transaction() as connection:
        found = await listed.list_dead_letters(connection, page, chosen=chosen.as_filter())
    letters = [DeadLetterAnswer.model_validate(row) for row in found.rows]
    return DeadLetterList(dead_letters=letters, total_entries=found.total)


@router.post("/requeue")
async def requeue_dead_letters(host: HostOf, requeuer: RequeuerOf, body: BulkBody) -> BulkAnswer:
    """Requeue several letters as they are, each by itself: one that cannot be requeued stops no other."""
    ids = await _chosen(host, body, state=DeadLetterState.HELD)
    until = time.monotonic() + BULK_SECONDS
    async with requeuer.checking() as checker:
        return _bulk([await _requeued(requeuer, letter_id, checker=checker, until=until) for letter_id in ids])


@router.post("/delete")
async def delete_dead_letters(host: HostOf, body: BulkBody) -> BulkAnswer:
    """Delete several letters."""
    ids = await _chosen(host, body)
    gone = await dead_letters.delete(host.database, ids)
    unknown = "There is no dead letter {}."
    return _bulk(
        [
            LetterOutcome(id=each, status=204) if each in gone else
            LetterOutcome(id=each, status=404, detail=unknown.format(each))
            for each in ids
        ]
    )  # fmt: skip


@router.get("/{dead_letter_id}")
async def get_dead_letter(host: HostOf, dead_letter_id: LetterId) -> DeadLetterDetails:
    """One message that could not become an event, with what was kept of it. Nothing in it is masked."""
    async with host.database.transaction() as connection:
        found = await listed.read_dead_letter(connection, dead_letter_id)
    if found is None:
        raise NotFound(what=f"dead letter {dead_letter_id}")
    return DeadLetterDetails.model_validate(shown_letter(found))


@router.post("/{dead_letter_id}/requeue")
async def requeue_dead_letter(
    host: HostOf, requeuer: RequeuerOf, dead_letter_id: LetterId, body: RequeueBody | None = None
) -> RequeuedAnswer:
    """Make the events that the message would have made, once. With ``payload`` of that instead of its own."""
    payload = None
    if body is not None and "payload" in body.model_fields_set:
        limits = host.settings
        payload = payload_text(
            body.payload, what="the payload", max_bytes=limits.max_payload_bytes, max_depth=limits.max_payload_depth
        )
    return RequeuedAnswer.model_validate(await requeuer.requeue(dead_letter_id, payload=payload))


@router.delete("/{dead_letter_id}", status_code=204, response_class=Response)
async def delete_dead_letter(host: HostOf, dead_letter_id: LetterId) -> None:
    """Delete a letter."""
    if not await dead_letters.delete(host.database, [dead_letter_id]):
        raise dead_letters.LetterUnknown(id=dead_letter_id)


async def _chosen(host: HostOf, body: BulkBody, *, state: DeadLetterState | None = None) -> list[int]:
    if body.ids is not None:
        return list(dict.fromkeys(body.ids))
    assert body.filter is not None
    wanted = body.filter if body.filter.state or state is None else body.filter.model_copy(update={"state": state})
    async with host.database.transaction() as connection:
        return await listed.ids_of(connection, chosen=wanted.as_filter(), limit=body.limit)


async def _requeued(requeuer: Requeuer, letter_id: int, *, checker: Checker, until: float) -> LetterOutcome:
    if time.monotonic() > until:
        return LetterOutcome(id=letter_id, status=503, detail="its turn did not come in time; ask again")
    try:
        done = await requeuer.requeue(letter_id, checker=checker)
    except Exception as error:  # noqa: BLE001 - a refusal of this letter; what is none is raised again
        status, detail = refusal(error)
        return LetterOutcome(id=letter_id, status=status, detail=detail)
    return LetterOutcome(id=letter_id, status=200, event_ids=list(done.event_ids), created=done.created)


def _bulk(letters: list[LetterOutcome]) -> BulkAnswer:
    done = sum(each.status < 300 for each in letters)
    return BulkAnswer(letters=letters, done=done, failed=len(letters) - done)
