"""Clients of the service, shared by all triggers of a process that would have equal ones.

Many triggers, few clients: a client has its own connection pool, TLS context and model of the service. Long polls
occupy a connection each, so the pool has no limit; otherwise deletions would wait behind polls.

A client whose credentials are refused is retired: who comes next gets a new one, which reads connection and
credential chain anew, and the old one is closed when the last request over it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import aioboto3
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.loaders import Loader

from providers.sqs.errors import CredentialsRefused, mapped
from watchers.connections import Connection, get_connection

#: Signs requests to an endpoint for which nobody named a region.
DEFAULT_REGION = "us-east-1"
CONNECT_DEADLINE = 5.0
#: Seconds without a byte after which a read fails. A long poll is silent for 20; deadlines of requests are shorter.
READ_DEADLINE = 60.0

_loader = Loader(include_default_search_paths=True)
#: Parts of the service's model that every client needs; reading them takes longer than a loop may be held.
_MODELS = ("service-2", "endpoint-rule-set-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """What makes two clients equal."""

    endpoint_url: str | None = None
    region_name: str | None = None
    connection_id: str | None = None


@dataclass(slots=True, kw_only=True)
class _Live:
    client: Any
    stack: AsyncExitStack
    requests: int = 0
    is_retired: bool = False

    async def close_if_unused(self) -> None:
        if self.is_retired and self.requests == 0:
            await self.stack.aclose()


class SharedClient:
    """One client, made when first needed and again after its credentials were refused."""

    def __init__(self, identity: ClientIdentity) -> None:
        self._identity = identity
        self._live: _Live | None = None
        self._making = asyncio.Lock()
        self.users = 0

    @asynccontextmanager
    async def request(self, action: str, *, deadline: float) -> AsyncIterator[Any]:
        """Lend the client for one request of at most ``deadline`` seconds.

        Raises what :func:`providers.sqs.errors.mapped` makes of the vendor's errors; ``action`` names the request.
        """
        live: _Live | None = None
        try:
            async with asyncio.timeout(deadline):
                live = await self._current()
                live.requests += 1
                yield live.client
        except Exception as error:
            known = mapped(error, action=action)
            if known is None:
                raise
            if isinstance(known, CredentialsRefused) and live is not None:
                self._retire(live)
            raise known from error
        finally:
            if live is not None:
                live.requests -= 1
                await live.close_if_unused()

    async def close(self) -> None:
        """Close once no request is under way."""
        live = self._live
        if live is not None:
            self._retire(live)
            await live.close_if_unused()

    def _retire(self, live: _Live) -> None:
        live.is_retired = True
        if self._live is live:
            self._live = None

    async def _current(self) -> _Live:
        async with self._making:
            if self._live is None:
                self._live = await _make(self._identity)
            return self._live


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClientIdentity, SharedClient]] = WeakKeyDictionary()


@asynccontextmanager
async def shared_client(identity: ClientIdentity) -> AsyncIterator[SharedClient]:
    """The client of this identity and loop, for as long as the block lasts; the last user closes it."""
    clients = _shared.setdefault(asyncio.get_running_loop(), {})
    client = clients.setdefault(identity, SharedClient(identity))
    client.users += 1
    try:
        yield client
    finally:
        client.users -= 1
        if client.users == 0:
            if clients.get(identity) is client:
                del clients[identity]
            await client.close()


async def _make(identity: ClientIdentity) -> _Live:
    connection = get_connection(identity.connection_id) if identity.connection_id else None
    session = await asyncio.to_thread(_new_session, identity, connection)
    endpoint = identity.endpoint_url or _extra(connection, "endpoint_url")
    # The vendor's own retries are off: an outage must be seen at once, and ours has the longer patience.
    config = AioConfig(
        connect_timeout=CONNECT_DEADLINE,
        read_timeout=READ_DEADLINE,
        max_pool_connections=0,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    stack = AsyncExitStack()
    # Reading the certificates holds the loop for 50 ms: not for an endpoint that has no use for them.
    verify = False if endpoint is not None and endpoint.startswith("http://") else None
    client = await stack.enter_async_context(session.client("sqs", endpoint_url=endpoint, config=config, verify=verify))
    return _Live(client=client, stack=stack)


def _new_session(identity: ClientIdentity, connection: Connection | None) -> aioboto3.Session:
    """A session with its models read. Runs in a thread."""
    core = AioSession()
    core.register_component("data_loader", _loader)
    for model in _MODELS:
        _loader.load_service_model("sqs", model)
    for name in ("endpoints", "partitions", "sdk-default-configuration"):
        _loader.load_data(name)
    region = identity.region_name or _extra(connection, "region_name") or core.get_config_variable("region")
    if region is None and (identity.endpoint_url or _extra(connection, "endpoint_url")):
        region = DEFAULT_REGION
    return aioboto3.Session(
        aws_access_key_id=connection.login if connection else None,
        aws_secret_access_key=connection.password if connection else None,
        aws_session_token=_extra(connection, "aws_session_token") or _extra(connection, "session_token"),
        profile_name=_extra(connection, "profile_name"),
        region_name=region,
        botocore_session=core,
    )


def _extra(connection: Connection | None, name: str) -> str | None:
    value = connection.extra.get(name) if connection is not None else None
    return str(value) if value else None
