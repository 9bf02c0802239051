"""An event trigger over an SQS queue."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

from providers.sqs.address import read_address
from watchers.bodies import decode_body
from watchers.errors import WatcherDeclarationError
from watchers.triggers import BaseEventTrigger, TriggerEvent, Yielded

if TYPE_CHECKING:
    from providers.sqs.intake import Intake
    from providers.sqs.queue import Message

# The client is imported when the trigger runs: that takes a second, and whoever only declares a queue need not wait.
if importlib.util.find_spec("aioboto3") is None:
    raise ImportError("aioboto3 is not installed")


class SqsTrigger(BaseEventTrigger):
    """Each message of a queue is one event.

    ``sqs_queue`` is a queue's name, ``sqs://name`` or a queue's URL. A queue that does not exist is shown as failing
    and waited for.

    ``region_name`` and ``endpoint_url`` say where, where the queue's URL does not. ``connection_id`` (``aws_conn_id``
    is the field's word for it) names a connection whose login and password are access key and secret, with
    ``region_name``, ``endpoint_url``, ``aws_session_token`` and ``profile_name`` among its extras; without it the
    client's own chain applies: environment (``AWS_ENDPOINT_URL`` too), configuration files, the machine's role.

    ``receivers`` requests poll at the same time, for ``max_messages`` (1 to 10) each, waiting ``wait_time_seconds``
    (0 to 20). A message is hidden from others for ``visibility_timeout`` seconds, which is extended as long as it is in
    hand; after a crash it comes again when that time is over.

    The payload is ``{"value", "encoding", "message_id", "attributes", "message_attributes", "queue"}``: value and
    encoding as :func:`watchers.bodies.decode_body` gives them, the service's attributes as texts, each message
    attribute as ``{"type", "value", "encoding"}`` (bytes are base64). Key is the message id; source is the queue's
    URL as the service returns it, so that name and URL of one queue are one source, whatever endpoint is asked.

    Order is kept within a message group of a FIFO queue. An SQS body is never empty and never binary. For a deferred
    task, which takes one event, a single message is received.
    """

    acknowledges = True
    public_kwargs: ClassVar[frozenset[str]] = frozenset(
        {"sqs_queue", "region_name", "endpoint_url", "connection_id", "aws_conn_id"}
    )

    runs_with: ClassVar[tuple[str, ...]] = ("providers.sqs.client", "providers.sqs.intake", "providers.sqs.queue")

    def __init__(
        self,
        sqs_queue: str,
        *,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        connection_id: str | None = None,
        aws_conn_id: str | None = None,
        receivers: int = 2,
        max_messages: int = 10,
        wait_time_seconds: int = 20,
        visibility_timeout: int = 10,
    ) -> None:
        self._address = read_address(sqs_queue)
        self.sqs_queue = sqs_queue
        self.region_name = region_name
        self.endpoint_url = endpoint_url
        self.connection_id = connection_id if connection_id is not None else aws_conn_id
        self.receivers = _within("receivers", receivers, low=1, high=50)
        self.max_messages = _within("max_messages", max_messages, low=1, high=10)
        self.wait_time_seconds = _within("wait_time_seconds", wait_time_seconds, low=0, high=20)
        self.visibility_timeout = _within("visibility_timeout", visibility_timeout, low=1, high=43200)
        self._check_place()
        self._intake: Intake | None = None

    def _check_place(self) -> None:
        region = self._address.region
        if region is not None and self.region_name not in {None, region}:
            raise WatcherDeclarationError(f"the queue's URL is in {region}, but region_name={self.region_name!r}")
        if self.endpoint_url is not None and "@" in self.endpoint_url:
            raise WatcherDeclarationError("endpoint_url must not name a user: use a connection for secrets")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as for every trigger."""
        return "providers.sqs.trigger.SqsTrigger", {
            "sqs_queue": self.sqs_queue,
            "region_name": self.region_name,
            "endpoint_url": self.endpoint_url,
            "connection_id": self.connection_id,
            "receivers": self.receivers,
            "max_messages": self.max_messages,
            "wait_time_seconds": self.wait_time_seconds,
            "visibility_timeout": self.visibility_timeout,
        }

    def default_source(self) -> str | None:
        """The queue's URL, where one was written. Events name their source themselves in any case."""
        return self._address.url

    async def run(self) -> AsyncIterator[Yielded]:
        """Yield what is received and delete it once it is resolved."""
        await asyncio.to_thread(importlib.import_module, "providers.sqs.client")
        from providers.sqs.client import ClientIdentity, shared_client
        from providers.sqs.intake import Intake, Tuning
        from providers.sqs.queue import Queue

        identity = ClientIdentity(
            endpoint_url=self.endpoint_url or self._address.origin,
            region_name=self.region_name or self._address.region,
            connection_id=self.connection_id,
        )
        waits_for_one = self.task_instance is not None
        tuning = Tuning(
            receivers=1 if waits_for_one else self.receivers,
            limit=1 if waits_for_one else self.max_messages,
            wait=self.wait_time_seconds,
            visibility=self.visibility_timeout,
        )
        async with shared_client(identity) as client:
            queue = Queue(self._address, client)
            intake = self._intake = Intake(queue, tuning, status=self.status, log=self.log)
            intake.start()
            try:
                while True:
                    messages = await intake.next_batch()
                    source = await queue.url()
                    yield [_event(message, source=source) for message in messages]
                    await intake.confirm(messages)
            finally:
                self._intake = None
                await intake.close()

    async def lag(self) -> int | None:
        """Visible messages, approximately. Needs ``sqs:GetQueueAttributes``."""
        return None if self._intake is None else await self._intake.lag()


def _event(message: Message, *, source: str) -> TriggerEvent:
    raw = message.body.encode("utf-8", errors="surrogatepass")
    body = decode_body(raw)
    payload = {
        "value": body.value,
        "encoding": body.encoding,
        "message_id": message.id,
        "attributes": message.attributes,
        "message_attributes": message.message_attributes,
        "queue": source,
    }
    return TriggerEvent(payload, key=message.id, source=source, raw=raw)


def _within(name: str, value: int, *, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise WatcherDeclarationError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value
