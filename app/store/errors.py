"""Database errors, mapped once from SQLSTATE and client exceptions to ours.

::

    StoreError
    ├── DatabaseUnavailable   the server is away, ends our session or cannot work now: wait and try again
    ├── DatabaseRefused       the server is there and refuses us: a person must change the setting or the server
    ├── Conflict              deadlock or serialization failure: run the same transaction again
    ├── DataRefused           a value the database cannot hold: the culprit must be isolated
    └── ConstraintViolated    an invariant of the schema was about to be broken; ``constraint`` names it

Anything else passes through unchanged: it is a defect and should be seen as one.
"""

from __future__ import annotations

import ssl

import asyncpg
from sqlalchemy.exc import DBAPIError

from app.kernel.errors import DatabaseError


class StoreError(DatabaseError):
    """Root of the database errors that callers are expected to handle."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached right now."""


class DatabaseRefused(StoreError):
    """The database refuses the connection: {reason}. Correct TIDEGATE_DATABASE_URL, or what the server allows."""


class Conflict(StoreError):
    """The transaction lost against another one; running it again is right."""


class DataRefused(StoreError):
    """A value cannot be stored (out of range, NUL in a text column, invalid JSON, too large)."""


class ConstraintViolated(StoreError):
    """A constraint of the schema refused the change."""

    def __init__(self, message: str, *, constraint: str | None) -> None:
        self.constraint = constraint
        super().__init__(message)


_CONFLICTS = {"40001", "40P01", "55P03"}
#: What passes: shutdown, crash, cannot connect now, a cancelled statement, a session ended for idling, a server that is
#: read-only for the moment (it was demoted).
_AWAY = {"57P01", "57P02", "57P03", "57P05", "57014", "25P03", "25006"}
#: So do whole classes: connections (08), resources such as disk, memory and connections (53), the system below (58).
_AWAY_CLASSES = ("08", "53", "58")


def translate(error: BaseException) -> BaseException:
    """The error of ours that ``error`` means, or ``error`` itself. Looks through SQLAlchemy's wrapping."""
    cause = error
    if isinstance(error, DBAPIError) and error.orig is not None:
        cause = error.orig.__cause__ or error.orig
    state = getattr(cause, "sqlstate", None) or ""
    text = f"{type(cause).__name__}: {cause}"
    if state in _CONFLICTS:
        return Conflict(text)
    if state in _AWAY or state.startswith(_AWAY_CLASSES):
        return DatabaseUnavailable(text)
    if isinstance(cause, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError) and not state:
        return error if _is_misuse(cause) else DatabaseUnavailable(text)
    if state.startswith("23"):
        return ConstraintViolated(text, constraint=getattr(cause, "constraint_name", None))
    if state.startswith(("22", "54")) or isinstance(cause, asyncpg.DataError):
        return DataRefused(text)
    return error


#: What opening a connection can meet.
CONNECT_ERRORS = (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
#: Refusals that waiting does not cure: authorization (28), no such database, no right to connect or to create, an
#: unknown or wrong parameter in the URL.
_REFUSALS = {"3D000", "42501", "42704", "22023"}


def translate_connecting(error: BaseException) -> BaseException:
    """Like :func:`translate`, for what opening a connection or migrating met: tells what to do about it."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    cause = cause.__cause__ if isinstance(cause.__cause__, asyncpg.PostgresError) else cause
    state = getattr(cause, "sqlstate", None) or ""
    if state in _REFUSALS or state.startswith("28"):
        return DatabaseRefused(reason=cause)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return DatabaseRefused(reason=f"its certificate is not trusted, {cause.verify_message}")
    if isinstance(cause, asyncpg.exceptions.ClientConfigurationError):
        return DatabaseRefused(reason=cause)
    if isinstance(cause, ValueError):  # its text may hold a part of the URL, and that of a password
        return DatabaseRefused(reason="TIDEGATE_DATABASE_URL is not well-formed")
    ours = translate(error)
    if isinstance(ours, DatabaseUnavailable):
        return DatabaseUnavailable(f"The database cannot be reached, or not now: {_said(cause)}. {_IS_IT_THERE}")
    return ours


_IS_IT_THERE = "Does the server run, and does TIDEGATE_DATABASE_URL name it?"


def _said(cause: BaseException) -> str:
    if isinstance(cause, TimeoutError) and not str(cause):
        return "it did not answer in time"
    return " ".join(str(cause).split()).rstrip(".") or type(cause).__name__


def _is_misuse(cause: BaseException) -> bool:
    """The client's interface errors mean "connection is closed" or a defect of ours; only the former is passing."""
    if not isinstance(cause, asyncpg.InterfaceError) or isinstance(cause, asyncpg.DataError):
        return isinstance(cause, asyncpg.DataError)
    text = str(cause)
    return not any(word in text for word in ("closed", "connection was", "closing", "lost", "released back"))
