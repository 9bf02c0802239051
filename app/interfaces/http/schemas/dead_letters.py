"""Dead letters, and what is asked of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue, model_validator

from app.domain.states import DeadLetterState
from app.interfaces.http.schemas.base import Answer, Body, Moment
from app.store.listings.dead_letters import LetterFilter

#: Most letters of one bulk request.
MOST_AT_ONCE = 100
RowId = Annotated[int, Field(strict=True, ge=0, lt=2**63)]


class DeadLetterAnswer(Answer):
    """A message that could not become an event. ``asset_id`` is set if one asset refused it."""

    id: int
    trigger_id: int | None = None
    asset_id: int | None = None
    asset_name: str | None = None
    source: str | None = None
    key: str | None = None
    code: str
    reason: str
    raw_size: int | None = None
    raw_truncated: bool
    has_payload: bool
    state: DeadLetterState
    requeued_at: datetime | None = None
    event_ids: list[int]
    created_at: datetime


class DeadLetterDetails(DeadLetterAnswer):
    """A dead letter with what was kept of the message: its first bytes in base64, the same as text if they are text,
    and the payload it would have had if it came that far (``has_payload``)."""

    raw: str | None = None
    raw_text: str | None = None
    payload: JsonValue = None


class DeadLetterList(Answer):
    """A page of dead letters."""

    dead_letters: list[DeadLetterAnswer]
    total_entries: int


class RequeueBody(Body):
    """``payload``, if given, takes the place of the message's own; null is a payload too."""

    payload: JsonValue = None


class RequeuedAnswer(Answer):
    """What requeueing made. ``event_ids`` are also events that the same message had made before; ``created`` says how
    many are new; ``dead_letters`` are new letters of assets that refuse the payload while others take it."""

    id: int
    event_ids: list[int]
    created: int
    dead_letters: list[int]


class Chosen(BaseModel):
    """Which letters."""

    trigger_id: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    asset_id: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    asset_name: str | None = None
    code: str | None = None
    source: str | None = None
    key: str | None = None
    state: DeadLetterState | None = None
    created_at_gt: Moment | None = None
    created_at_gte: Moment | None = None
    created_at_lt: Moment | None = None
    created_at_lte: Moment | None = None

    def as_filter(self) -> LetterFilter:
        """The same for the store."""
        return LetterFilter(**{name: getattr(self, name) for name in Chosen.model_fields})


class ChosenBody(Body, Chosen):
    """Which letters, by the same names as in the list."""


class BulkBody(Body):
    """Letters by their ids, or the oldest ``limit`` of those that a filter finds; an empty filter finds all."""

    ids: list[RowId] | None = Field(default=None, min_length=1, max_length=MOST_AT_ONCE)
    filter: ChosenBody | None = None
    limit: int = Field(default=MOST_AT_ONCE, strict=True, ge=1, le=MOST_AT_ONCE)

    @model_validator(mode="after")
    def _says_which(self) -> BulkBody:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or a filter")
        return self


class LetterOutcome(Answer):
    """What became of one letter of a bulk request: the status and detail that a request for it alone would have had.
    503 means that its turn did not come in time."""

    id: int
    status: int
    detail: str | None = None
    event_ids: list[int] = Field(default_factory=list)
    created: int = 0


class BulkAnswer(Answer):
    """What became of each letter, in the order of the request; how many it worked for, and for how many not."""

    letters: list[LetterOutcome]
    done: int
    failed: int
