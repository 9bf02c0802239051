"""What executor, warm parent and task process say to each other.

Executor ⇄ warm parent: small packets on a ``SOCK_SEQPACKET`` pair; a :class:`Fork` carries one file descriptor, the
task process's own end of a fresh socket pair. Executor ⇄ task process: frames on that pair.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from app.domain.orders import AttemptOrder, EventValue, Outcome

#: Largest packet between executor and warm parent, in bytes.
MAX_PACKET = 64 * 1024
#: Largest order or reply to a task process, in bytes: a batch may hold thousands of large events.
MAX_TO_ATTEMPT = 256 * 1024 * 1024
#: A process id as the kernel gives them. Signals to others than these would reach whole groups of processes.
Pid = Annotated[int, msgspec.Meta(gt=1)]


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Start a task process that reads its order from the descriptor sent along."""

    slot: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The pipeline file is imported. ``unforkable`` says why attempts must be spawned afresh instead, if they must."""

    unforkable: str | None = None


class ImportFailed(msgspec.Struct, frozen=True, tag=True):
    """The pipeline file could not be imported; the parent ends."""

    error: str


class Forked(msgspec.Struct, frozen=True, tag=True):
    """The task process of ``slot`` runs as ``pid``."""

    slot: int
    pid: Pid


class ForkFailed(msgspec.Struct, frozen=True, tag=True):
    """The operating system refused a process for ``slot``."""

    slot: int
    error: str


class Exited(msgspec.Struct, frozen=True, tag=True):
    """The task process of ``slot`` ended; ``status`` is negative for a signal, as in ``subprocess``."""

    slot: int
    status: int


FromWarmParent = Ready | ImportFailed | Forked | ForkFailed | Exited


class Order(msgspec.Struct, frozen=True, tag=True):
    """Run this attempt. Sent only once the attempt is recorded as running."""

    order: AttemptOrder


class Reply(msgspec.Struct, frozen=True, tag=True):
    """Answer to the last request: a value, or what went wrong."""

    value: Any = None
    error: str | None = None


ToAttempt = Order | Reply


class PullXCom(msgspec.Struct, frozen=True, tag=True):
    """XComs of this run: a :class:`Reply` with a list of ``[task_id, canonical text]``."""

    task_ids: list[str]
    key: str


class ListInletEvents(msgspec.Struct, frozen=True, tag=True):
    """Events of one asset, newest last; a :class:`Reply` with a list of :class:`EventValue`."""

    name: str
    uri: str
    after: str | None = None
    before: str | None = None
    ascending: bool = True
    limit: int | None = None


class Finished(msgspec.Struct, frozen=True, tag=True):
    """How the attempt ended."""

    outcome: Outcome


Request = PullXCom | ListInletEvents
FromAttempt = PullXCom | ListInletEvents | Finished

__all__ = [
    "MAX_PACKET",
    "MAX_TO_ATTEMPT",
    "EventValue",
    "Exited",
    "Finished",
    "Fork",
    "ForkFailed",
    "Forked",
    "FromAttempt",
    "FromWarmParent",
    "ImportFailed",
    "ListInletEvents",
    "Order",
    "PullXCom",
    "Ready",
    "Reply",
    "Request",
    "ToAttempt",
]
