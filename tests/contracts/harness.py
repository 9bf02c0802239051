"""What a message source must offer to be put through the contract suite."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar, Protocol

from watchers.triggers import BaseEventTrigger, TriggerEvent


class Break(Enum):
    """How the connection between trigger and broker breaks."""

    REFUSE = "refuse"
    RESET = "reset"
    MUTE = "mute"


class SourceHarness(Protocol):
    """One fresh queue of a real broker, behind a proxy that only the trigger goes through.

    * ``send``, ``backlog`` and ``redeliver`` reach the broker directly, also while the connection is broken.
    * ``backlog`` counts messages that are not acknowledged: waiting or handed out.
    * ``redeliver`` has the broker hand out again, soon, whatever is not acknowledged.
    * ``new_trigger`` builds the trigger from its ``serialize()``, with time limits short enough for tests.
    """

    #: How the source is called in test ids.
    name: ClassVar[str]
    #: Whether any bytes can be a message's body, and whether nothing can.
    binary_bodies: ClassVar[bool]
    empty_bodies: ClassVar[bool]

    async def start(self) -> None:
        """Create the queue; the broker itself may be shared by all tests of a session."""

    async def stop(self) -> None:
        """Remove what ``start`` made."""

    async def send(self, bodies: Sequence[bytes], *, lanes: Sequence[str] | None = None) -> None:
        """Publish in order. ``lanes`` has as many entries as ``bodies``; equal entries are one lane."""

    async def backlog(self) -> int:
        """How many messages are not acknowledged."""
        raise NotImplementedError

    def new_trigger(self, **options: Any) -> BaseEventTrigger:
        """A trigger on the queue, through the proxy."""
        raise NotImplementedError

    async def break_connection(self, how: Break) -> None:
        """Break what there is and what comes."""

    async def heal(self) -> None:
        """Connections work again."""

    async def redeliver(self) -> None:
        """Hand out again what is not acknowledged."""

    def body(self, event: TriggerEvent) -> tuple[Any, str]:
        """The decoded value of a message and its encoding (``json``, ``text`` or ``base64``)."""
        raise NotImplementedError
