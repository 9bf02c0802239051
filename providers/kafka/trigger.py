"""The trigger of Kafka topics: each message one event, positions stored with the events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from providers.kafka.positions import Positions
from providers.kafka.settings import KafkaSettings, with_connection
from watchers.attempts import until_one_succeeds
from watchers.connections import get_connection
from watchers.errors import SourceError, SourceMisconfigured, WatcherError
from watchers.triggers import BaseEventTrigger, Yielded

if TYPE_CHECKING:
    from providers.kafka.session import Session

#: Pauses between attempts to connect, in seconds; the last one repeats.
RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0)


class KafkaTrigger(BaseEventTrigger):
    """Fires for each message of some topics of one Kafka cluster.

    Arguments are those of :class:`providers.kafka.settings.KafkaSettings`, which says what they mean. Secrets belong in
    the connection ``connection_id``: its host and port (unless ``bootstrap_servers`` are given), login and password
    (for SASL), and any of this trigger's options in its extra values.

    All partitions are read, assigned and not subscribed to, from the positions stored with the events. Committed
    offsets of ``group_id`` are a copy that follows the store. With ``assignment="group"`` the partitions are shared
    with the group's other members, and its committed offsets, which follow the store as well, are the positions.
    Messages of one partition become events in their order. Transactional messages count once committed. See
    :func:`providers.kafka.records.event_of` for the payload.
    """

    acknowledges = True
    public_kwargs: ClassVar[frozenset[str]] = frozenset(
        {
            "assignment",
            "auto_offset_reset",
            "batch_size",
            "bootstrap_servers",
            "connection_id",
            "group_id",
            "metadata_refresh",
            "request_timeout",
            "sasl_mechanism",
            "security_protocol",
            "session_timeout",
            "ssl_cafile",
            "ssl_certfile",
            "ssl_check_hostname",
            "ssl_keyfile",
            "topics",
        }
    )

    runs_with: ClassVar[tuple[str, ...]] = ("providers.kafka.session", "providers.kafka.vendor_logs")

    def __init__(self, *, topics: Sequence[str] = (), bootstrap_servers: Sequence[str] = (), **options: Any) -> None:
        self.settings = KafkaSettings(
            topics=tuple(topics) if not isinstance(topics, str) else topics,  # type: ignore[arg-type]
            bootstrap_servers=bootstrap_servers if isinstance(bootstrap_servers, str) else tuple(bootstrap_servers),  # type: ignore[arg-type]
            **options,
        )
        self._failing = False
        self._attempts = 0
        self._session: Session | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "providers.kafka.trigger.KafkaTrigger", self.settings.declared()

    async def run(self) -> AsyncIterator[Yielded]:
        # The client is imported by the process that runs the trigger, not by each that reads a pipeline file.
        from providers.kafka.vendor_logs import tame_vendor_logs

        tame_vendor_logs()
        positions = Positions(self.positions)
        reported: SourceError | None = None
        while True:
            failed = False
            session = self._session = await until_one_succeeds(
                lambda: self._open(positions), pause=self._pause, discard=lambda late: late.close(flush=False)
            )
            try:
                while True:
                    batch = await session.next_batch()
                    if batch is not None:
                        yield batch.items
                        await session.stored(batch)
                    if session.healthy:
                        self._heal()
                    elif session.trouble is not None and session.trouble is not reported:
                        reported = session.trouble
                        self._fail(reported)
            except SourceError as error:
                failed = True
                self._fail(error)
            finally:
                self._session = None
                await session.close(flush=not failed)
            await asyncio.sleep(self._pause())

    async def lag(self) -> int | None:
        """Messages that were not handed out yet, over all partitions that are read."""
        session = self._session
        return None if session is None else await session.lag()

    async def _open(self, positions: Positions) -> Session | None:
        """A connected session; ``None``, having told why, if there is none to be had."""
        from providers.kafka.group_session import GroupSession
        from providers.kafka.session import Session

        try:
            settings = self._resolved_settings()
            shared = settings.assignment == "group"
            session = (
                GroupSession(settings, positions=Positions({}), log=self.log)
                if shared
                else Session(settings, positions=positions, log=self.log)
            )
            try:
                await session.open()
            except BaseException:
                await session.close(flush=False)
                raise
        except SourceError as error:
            self._fail(error)
            return None
        return session

    def _pause(self) -> float:
        """Seconds to the next attempt to connect: more after each that failed since the source was last healthy."""
        pause = RETRY_PAUSES[min(self._attempts, len(RETRY_PAUSES) - 1)]
        self._attempts += 1
        return pause * random.uniform(0.8, 1.0)

    def _resolved_settings(self) -> KafkaSettings:
        """The settings with what their connection adds, looked up anew for each attempt: it may have been changed."""
        settings = self.settings
        if settings.connection_id is not None:
            try:
                settings = with_connection(settings, get_connection(settings.connection_id))
            except WatcherError as error:
                raise SourceMisconfigured(str(error)) from error
        # A deferred task takes one event; more in its transaction would be passed over.
        return settings if self.task_instance is None else replace(settings, batch_size=1)

    def _fail(self, error: SourceError) -> None:
        self._failing = True
        self.status.failed(error)

    def _heal(self) -> None:
        self._attempts = 0
        if self._failing:
            self._failing = False
            self.status.recovered()
