"""How a queue is written, and the one spelling under which the same queue is always known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from watchers.errors import WatcherDeclarationError
from watchers.masking import redact_uri

_NAME = r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo"
_NAMED = re.compile(rf"(?:sqs://)?(?P<name>{_NAME})/?")
_REGIONAL = re.compile(
    rf"https://(?:sqs(?:-fips)?\.(?P<region>[^./]+)|(?P<legacy>[^./]+)\.queue)\.amazonaws\.com(?P<china>\.cn)?"
    rf"/(?P<account>[0-9]+)/(?P<name>{_NAME})/?"
)
_ANY = re.compile(rf"(?P<origin>https?://[^/@?#]+)(?:/[^/?#]+)*/(?P<name>{_NAME})/?")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAddress:
    """A queue as its author wrote it.

    ``url`` is known where a URL was written, in its canonical spelling; ``region`` where it is a URL of the service
    itself; ``origin`` (scheme, host, port) where it is a URL of another server that speaks the protocol.
    """

    name: str
    url: str | None = None
    region: str | None = None
    origin: str | None = None


def read_address(queue: str) -> QueueAddress:
    """Read a name, ``sqs://name`` or a URL; raises :class:`WatcherDeclarationError` for anything else."""
    if named := _NAMED.fullmatch(queue):
        return QueueAddress(name=named["name"])
    if regional := _REGIONAL.fullmatch(queue):
        return QueueAddress(
            name=regional["name"], url=canonical_url(queue), region=regional["region"] or regional["legacy"]
        )
    if other := _ANY.fullmatch(queue):
        return QueueAddress(name=other["name"], url=canonical_url(queue), origin=other["origin"])
    raise WatcherDeclarationError(
        f"{redact_uri(queue)!r} is no SQS queue: write sqs://name, or the queue's URL "
        "(https://sqs.<region>.amazonaws.com/<account>/<name>) without user and query"
    )


def canonical_url(url: str) -> str:
    """The spelling under which messages of this queue are known: the regional host, no closing slash.

    The service answers at several hosts for one queue (``sqs.``, ``sqs-fips.`` and the old ``.queue.``). A URL of
    another server stays as it is.
    """
    regional = _REGIONAL.fullmatch(url)
    if regional is None:
        return url.rstrip("/")
    region = regional["region"] or regional["legacy"]
    return f"https://sqs.{region}.amazonaws.com{regional['china'] or ''}/{regional['account']}/{regional['name']}"
