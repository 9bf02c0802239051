"""What all shapes share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, JsonValue


class Answer(BaseModel):
    """Base of answers: built from rows, extra columns of a row are left out."""

    model_config = ConfigDict(from_attributes=True, extra="ignore")


class Body(BaseModel):
    """Base of request bodies: what is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """Every error: a sentence, or a list of what is wrong where."""

    detail: JsonValue


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment lies outside the years 1 to 9999 in UTC") from None


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL character, which no name has")
    return text


#: A name or URI: the database keeps no NUL character.
Name = Annotated[str, AfterValidator(_without_nul)]
#: A point in time with time zone, in UTC.
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
