"""The rule that ids of DAGs, tasks, task groups and XCom keys keep."""

from __future__ import annotations

import re

from app.sdk.errors import DeclarationError

MAX_LENGTH = 250
_IDENTIFIER = re.compile(r"[\w.\-]+")


def checked_identifier(value: object, what: str) -> str:
    """``value`` if it is an id: letters, digits, dashes, dots and underscores, at most 250 of them.

    Raises :class:`DeclarationError` naming ``what``.
    """
    if not isinstance(value, str):
        raise DeclarationError(f"{what} must be text, not {type(value).__name__}")
    if not value:
        raise DeclarationError(f"{what} must not be empty")
    if len(value) > MAX_LENGTH:
        raise DeclarationError(f"{what} is {len(value)} characters long; the limit is {MAX_LENGTH}: {value[:40]!r}…")
    if not _IDENTIFIER.fullmatch(value):
        raise DeclarationError(f"{what} {value!r}: only letters, digits, dashes, dots and underscores are allowed")
    return value
