"""How ``sqs://name`` and queue URLs become a trigger."""

from __future__ import annotations

import re
from typing import Any

from watchers.provider import BaseMessageQueueProvider
from watchers.triggers import BaseEventTrigger

_SERVED = re.compile(
    r"sqs://.*|https://(sqs(-fips)?\.[^./]+|[^./]+\.queue)\.amazonaws\.com(\.cn)?/[0-9]+/.+", re.IGNORECASE
)


class SqsProvider(BaseMessageQueueProvider):
    """``sqs://queue-name`` or ``https://sqs.<region>.amazonaws.com[.cn]/<account>/<queue>``; ``scheme="sqs"`` with
    ``sqs_queue=`` takes any queue URL. Further options are those of the trigger."""

    scheme = "sqs"

    def queue_matches(self, queue: str) -> bool:
        """Whether this is an ``sqs://`` address or the URL of a queue of the service itself."""
        return _SERVED.fullmatch(queue) is not None

    def trigger_class(self) -> type[BaseEventTrigger]:
        """``SqsTrigger``; raises ImportError where the client is not installed."""
        from providers.sqs.trigger import SqsTrigger

        return SqsTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """The queue as it is written: the trigger reads it."""
        return {"sqs_queue": queue}
