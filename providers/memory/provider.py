"""How ``memory://name`` becomes a trigger."""

from __future__ import annotations

import re
from typing import Any

from providers.memory.trigger import MemoryTrigger
from watchers.errors import WatcherDeclarationError
from watchers.masking import redact_uri
from watchers.message_queue import BaseMessageQueueProvider
from watchers.triggers import BaseEventTrigger

_URI = re.compile(r"memory://(?P<queue>[^/?#@]+)/?", re.IGNORECASE)


class MemoryProvider(BaseMessageQueueProvider):
    """``memory://name``, or ``scheme="memory"`` with ``queue_name=``; further options are those of the trigger."""

    scheme = "memory"

    def trigger_class(self) -> type[BaseEventTrigger]:
        """:class:`MemoryTrigger`."""
        return MemoryTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """The queue's name; raises :class:`WatcherDeclarationError` if ``queue`` has none or says more than that."""
        match = _URI.fullmatch(queue)
        if match is None:
            raise WatcherDeclarationError(f"{redact_uri(queue)!r} is not of the form memory://name")
        return {"queue_name": match["queue"]}
