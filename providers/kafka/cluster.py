"""The control connection to a cluster: what topics there are, and the group's copy of the positions.

It is apart from the connection that fetches, because a broker answers the requests of one connection in order and a
waiting fetch would hold these up.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.conn import create_conn
from aiokafka.protocol.commit import OffsetCommitRequest

from providers.kafka.errors import translate, translated
from providers.kafka.metadata import ClusterView, TopicsRequest, view_of
from providers.kafka.settings import KafkaSettings
from watchers.errors import SourceError, SourceMisconfigured, SourceUnavailable

#: Coordinator answers that mean: ask anew who coordinates, in a moment.
_COORDINATOR_MOVED = (
    kafka.GroupCoordinatorNotAvailableError,
    kafka.GroupLoadInProgressError,
    kafka.NotCoordinatorForGroupError,
    kafka.RequestTimedOutError,
    kafka.NodeNotReadyError,
    kafka.KafkaConnectionError,
)


async def unbroken(opening: Coroutine[Any, Any, None]) -> None:
    """Await ``opening``; if cancelled meanwhile, let it come to its end first, for a second at most.

    The client leaves a connection open if it is broken off while it gets to know the cluster.
    """
    task = asyncio.create_task(opening)
    try:
        await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait([task], timeout=1.0)
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments that each client connection takes. Raises :class:`SourceMisconfigured` for TLS files."""
    options: dict[str, Any] = {
        "client_id": "tidegate",
        "request_timeout_ms": int(settings.request_timeout * 1000),
        "security_protocol": settings.security_protocol,
    }
    if settings.uses_tls:
        options["ssl_context"] = _tls(settings)
    if settings.uses_sasl:
        options |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.sasl_password,
        }
    return options


def _tls(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        context.check_hostname = settings.ssl_check_hostname
        if settings.ssl_certfile:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password)
    except (OSError, ValueError) as error:
        raise SourceMisconfigured(f"the TLS files cannot be used: {type(error).__name__}: {error}") from error
    return context


class Cluster:
    """One cluster, seen through a control connection. All calls have deadlines and raise :class:`SourceError`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._options = client_options(settings)
        self._client: Any = None
        self._coordinator: int | None = None

    async def open(self) -> str:
        """Connect; returns the address of a broker that answers."""
        server = await self._reach()
        self._client = AIOKafkaClient(
            bootstrap_servers=server,
            # Its own view, which brokers there are, is refreshed when a connection breaks.
            metadata_max_age_ms=3_600_000,
            **self._options,
        )
        with translated("connecting"):
            await unbroken(self._client.bootstrap())
        return server

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def view(self) -> ClusterView:
        """Ask any broker that answers."""
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        random.shuffle(nodes)
        failure: Exception = kafka.KafkaConnectionError("no broker is known")
        for node in nodes:
            try:
                view = view_of(await self._client.send(node, TopicsRequest(self._settings.topics)))
                # Else the client's own refresh would list every topic of the cluster; only topics that exist, for it
                # lets the broker create those that do not.
                self._client.set_topics([name for name, topic in view.topics.items() if topic.error is None])
                return view
            except (TimeoutError, kafka.KafkaError, OSError) as error:
                failure = error
        raise translate(failure, doing="reading the cluster's metadata") from failure

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the group's offsets, as no member of it. Retries while the group's coordinator is being found."""
        by_topic: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for partition, offset in offsets.items():
            by_topic[partition.topic].append((partition.partition, offset, ""))
        request = OffsetCommitRequest(
            group_id, OffsetCommitRequest.DEFAULT_GENERATION_ID, "", -1, list(by_topic.items())
        )
        with translated(f"committing offsets of group {group_id!r}"):
            async with asyncio.timeout(self._settings.request_timeout):
                while True:
                    try:
                        await self._commit(group_id, request)
                        return
                    except _COORDINATOR_MOVED:
                        self._coordinator = None
                    await asyncio.sleep(0.2)

    async def _commit(self, group_id: str, request: OffsetCommitRequest) -> None:
        if self._coordinator is None:
            self._coordinator = await self._client.coordinator_lookup(CoordinationType.GROUP, group_id)
        response = await self._client.send(self._coordinator, request, group=ConnectionGroup.COORDINATION)
        for topic, partitions in response.topics:
            for partition, code in partitions:
                error = kafka.for_code(code)
                if error is not kafka.NoError:
                    raise error(f"{topic}/{partition}")

    async def _reach(self) -> str:
        """The first of the servers to answer. All are tried at once: the client tries one after the other, waits its
        whole deadline for one that is mute, and only logs why it could not connect."""
        trying = {asyncio.create_task(self._try(server)): server for server in self._settings.bootstrap_servers}
        reason: SourceError = SourceUnavailable("connecting: no broker is named")
        try:
            left = set(trying)
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    failure = task.result()
                    if failure is None:
                        return trying[task]
                    if not isinstance(reason, SourceMisconfigured):
                        reason = failure
            raise reason
        finally:
            for task in trying:
                task.cancel()
            await asyncio.gather(*trying, return_exceptions=True)

    async def _try(self, server: str) -> SourceError | None:
        """Why the server cannot be used, or ``None``."""
        host, _, port = server.rpartition(":")
        try:
            with translated(f"connecting to {server}"):
                connection = await create_conn(host.strip("[]"), int(port), **self._options)
        except SourceError as error:
            return error
        await connection.close()
        return None
