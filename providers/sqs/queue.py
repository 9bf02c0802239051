"""Requests to one queue: what the provider needs of the service, in its own words."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from providers.sqs.address import QueueAddress, canonical_url
from providers.sqs.client import SharedClient
from providers.sqs.errors import receipt_is_gone
from watchers.errors import SourceError, SourceUnavailable

#: The service's limit of entries in one batch request.
BATCH_LIMIT = 10
#: Seconds a request may take beyond the time it asked the service to wait.
DEADLINE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as the service handed it out. ``receipt`` is good for this delivery only."""

    id: str
    receipt: str = field(repr=False)
    body: str = field(repr=False)
    attributes: Mapping[str, str]
    message_attributes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of a batch: ids done, ids whose receipt is void, and the others with the reason."""

    done: frozenset[str] = frozenset()
    void: frozenset[str] = frozenset()
    failed: Mapping[str, SourceError | str] = field(default_factory=dict)


class Queue:
    """One queue, over a shared client.

    :meth:`receive` and :meth:`url` raise the mapped errors of :mod:`providers.sqs.errors`; batch requests report per
    entry instead, the error of a whole request counting for each of its entries.
    """

    def __init__(self, address: QueueAddress, client: SharedClient) -> None:
        self.address = address
        self._client = client
        self._url: str | None = address.url

    async def url(self) -> str:
        """The queue's canonical URL; asks the service once where only a name was written."""
        if self._url is None:
            async with self._client.request(f"look up queue {self.address.name}", deadline=DEADLINE) as client:
                answer = await client.get_queue_url(QueueName=self.address.name)
                self._url = canonical_url(_of_the_service(answer)["QueueUrl"])
        return self._url

    async def receive(self, limit: int, *, wait: int, visibility: int) -> list[Message]:
        """At most ``limit`` messages, hidden from others for ``visibility`` seconds; waits ``wait`` seconds."""
        url = await self.url()
        async with self._client.request(f"receive from {self.address.name}", deadline=wait + DEADLINE) as client:
            answer = await client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=limit,
                WaitTimeSeconds=wait,
                VisibilityTimeout=visibility,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            return [_message(entry) for entry in _of_the_service(answer).get("Messages", ())]

    async def visible(self) -> int:
        """How many messages wait, approximately."""
        name, url = "ApproximateNumberOfMessages", await self.url()
        async with self._client.request(f"count {self.address.name}", deadline=DEADLINE) as client:
            answer = _of_the_service(await client.get_queue_attributes(QueueUrl=url, AttributeNames=[name]))
            return int(answer["Attributes"][name])

    async def delete(self, receipts: Mapping[str, str]) -> BatchResult:
        """Delete messages, given as receipts by message id."""
        return await self._in_batches("delete_message_batch", receipts, more={})

    async def set_visibility(self, receipts: Mapping[str, str], *, seconds: int) -> BatchResult:
        """Hide messages for ``seconds`` from now; 0 gives them back."""
        return await self._in_batches("change_message_visibility_batch", receipts, more={"VisibilityTimeout": seconds})

    async def _in_batches(self, operation: str, receipts: Mapping[str, str], *, more: Mapping[str, Any]) -> BatchResult:
        items = list(receipts.items())
        chunks = [items[start : start + BATCH_LIMIT] for start in range(0, len(items), BATCH_LIMIT)]
        results = await asyncio.gather(*(self._batch(operation, chunk, more=more) for chunk in chunks))
        failed: dict[str, SourceError | str] = {}
        for result in results:
            failed.update(result.failed)
        return BatchResult(
            done=frozenset().union(*(result.done for result in results)),
            void=frozenset().union(*(result.void for result in results)),
            failed=failed,
        )

    async def _batch(self, operation: str, items: Sequence[tuple[str, str]], *, more: Mapping[str, Any]) -> BatchResult:
        entries = [{"Id": str(number), "ReceiptHandle": receipt, **more} for number, (_, receipt) in enumerate(items)]
        try:
            url = await self.url()
            async with self._client.request(f"{operation} on {self.address.name}", deadline=DEADLINE) as client:
                answer = await getattr(client, operation)(QueueUrl=url, Entries=entries)
                return _batch_result(_of_the_service(answer), [identifier for identifier, _ in items])
        except SourceError as error:
            return BatchResult(failed={identifier: error for identifier, _ in items})


def _of_the_service(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """``answer``, unless something else spoke in the service's place: a page of a proxy reads like "no messages"."""
    kind = str(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("content-type", ""))
    if kind and "json" not in kind and "xml" not in kind:
        raise SourceUnavailable(f"the answer is {kind}, which is not the service's")
    return answer


def _batch_result(answer: Mapping[str, Any], identifiers: Sequence[str]) -> BatchResult:
    """An entry that the answer does not mention at all counts as failed."""
    done = {identifiers[int(entry["Id"])] for entry in answer.get("Successful", ())}
    void: set[str] = set()
    failed: dict[str, SourceError | str] = {}
    for entry in answer.get("Failed", ()):
        identifier, code, message = identifiers[int(entry["Id"])], entry.get("Code", ""), entry.get("Message", "")
        if receipt_is_gone(code, message):
            void.add(identifier)
        else:
            failed[identifier] = f"{code}: {message}"
    for identifier in set(identifiers) - done - void - failed.keys():
        failed[identifier] = "the service does not mention this entry"
    return BatchResult(done=frozenset(done), void=frozenset(void), failed=failed)


def _message(entry: Mapping[str, Any]) -> Message:
    return Message(
        id=entry["MessageId"],
        receipt=entry["ReceiptHandle"],
        body=entry.get("Body") or "",
        attributes=dict(entry.get("Attributes", {})),
        message_attributes={
            name: _message_attribute(value) for name, value in entry.get("MessageAttributes", {}).items()
        },
    )


def _message_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    """Type and value; bytes are base64, and flagged so. Numbers stay texts: the service's have 38 digits."""
    data_type = str(value.get("DataType", "String"))
    binary = value.get("BinaryValue")
    if binary is not None:
        return {"type": data_type, "value": base64.b64encode(binary).decode("ascii"), "encoding": "base64"}
    return {"type": data_type, "value": value.get("StringValue", ""), "encoding": "text"}
