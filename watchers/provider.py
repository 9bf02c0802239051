"""The port by which a vendor's package offers its message queues."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from watchers.triggers import BaseEventTrigger


class BaseMessageQueueProvider:
    """Connects a queue URI or a scheme with the trigger class that reads such queues.

    A provider's module must be quick to import and must not import its vendor's client: :meth:`trigger_class` does,
    when a queue is really declared. An ``ImportError`` there is reported as a missing extra.
    """

    #: The word of ``scheme=`` and of ``scheme://…``, lower case.
    scheme: ClassVar[str] = ""
    #: Names of trigger kwargs that hold secrets, for documentation. All texts but a class's ``public_kwargs`` are
    #: masked in any case.
    secret_kwargs: ClassVar[frozenset[str]] = frozenset()

    def scheme_matches(self, scheme: str) -> bool:
        """Whether this provider serves ``scheme``."""
        return scheme.lower() == self.scheme

    def queue_matches(self, queue: str) -> bool:
        """Whether this provider serves the queue written as ``queue``."""
        return queue.lower().startswith(f"{self.scheme}://")

    @abstractmethod
    def trigger_class(self) -> type[BaseEventTrigger]:
        """The class of the trigger that reads such queues."""
        raise NotImplementedError

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Translate ``queue`` into keyword arguments of the trigger class.

        ``kwargs`` are the author's, to look at. They are passed on to the trigger class as well; what is returned
        here takes precedence. Not called when the author named a scheme and no queue.

        Raises :class:`WatcherDeclarationError` if ``queue`` is malformed.
        """
        raise NotImplementedError
