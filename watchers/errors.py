"""Every way the ground floor refuses something.

::

    WatcherError
    ├── EncodingRefused          a value has no defined encoding (kwargs) or is no JSON value (payload)
    │   └── PayloadRefused       one event's payload; that event becomes a dead letter, its trigger goes on
    ├── WatcherDeclarationError  an asset watcher or trigger is declared wrongly; a parse error of its file
    │   ├── UnknownQueue         no registered provider serves the queue or scheme
    │   ├── AmbiguousQueue       more than one registered provider claims it
    │   └── ProviderUnavailable  the provider that would serve it cannot be loaded, for want of an extra perhaps
    ├── ConnectionNotFound       a connection id is not configured
    ├── ConnectionMalformed      a connection is configured in a way that cannot be read
    ├── VariableNotFound         a variable is not configured
    └── SourceError              the broker or file system refused or failed
        ├── SourceUnavailable    passing trouble: retried inside the provider
        └── SourceMisconfigured  will not heal by itself: wrong credentials, missing queue, bad option
"""

from __future__ import annotations


class WatcherError(Exception):
    """Root of the errors raised by triggers, watchers and sources."""


class EncodingRefused(WatcherError):
    """A value cannot be encoded. ``path`` says where in the value (for example ``kwargs.topics[2]``)."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{path}: {reason}" if path else reason)


class PayloadRefused(EncodingRefused):
    """The payload of one event is not acceptable; ``code`` is a short stable word for the reason."""

    def __init__(self, reason: str, *, code: str, path: str = "") -> None:
        self.code = code
        super().__init__(reason, path=path)


class WatcherDeclarationError(WatcherError, ValueError):
    """A watcher, trigger or queue is declared in a way that cannot work."""


class UnknownQueue(WatcherDeclarationError):
    """No registered provider serves this queue or scheme; the message lists the schemes known."""


class AmbiguousQueue(WatcherDeclarationError):
    """More than one registered provider claims this queue or scheme."""


class ProviderUnavailable(WatcherDeclarationError):
    """The provider that would serve this queue cannot be loaded; the message says what to install."""


class ConnectionNotFound(WatcherError):
    """No connection of this id is configured."""


class ConnectionMalformed(WatcherError):
    """A connection is configured, but its URI or JSON form cannot be read. Shows nothing of its contents."""


class VariableNotFound(WatcherError, KeyError):
    """No variable of this key is configured."""

    __str__ = WatcherError.__str__


class SourceError(WatcherError):
    """A message source failed."""


class SourceUnavailable(SourceError):
    """Passing trouble with a source (connection, time-out, throttling): try again later."""


class SourceMisconfigured(SourceError):
    """A source refuses for a reason that waiting does not heal."""
