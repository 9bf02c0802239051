"""What a Kafka trigger can be told, checked when it is declared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import urlsplit

from watchers.connections import Connection
from watchers.errors import WatcherDeclarationError

DEFAULT_PORT = 9092

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_RESETS = ("earliest", "latest")
_ASSIGNMENTS = ("lease", "group")


#: Spellings of options in the field's connections.
_ALIASES = {
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Which topics of which cluster, and how to read them.

    ``topics`` and ``bootstrap_servers`` (``host:port``) are kept sorted: their order means nothing, and equal triggers
    share one poller. Without ``bootstrap_servers`` the connection ``connection_id`` names them.

    ``auto_offset_reset`` says where a first start begins: ``earliest`` (the default: nothing that was sent before the
    watcher started is skipped) or ``latest``. It never matters again: partitions that appear later begin at their
    first message, and a start that finds a stored position resumes there.

    ``group_id`` is where copies of the positions are committed for lag tools; ``None`` derives one from the name of
    this deployment and the source.

    ``assignment`` says who decides what is read. ``lease``: all partitions are this trigger's, under the lease of its
    triggerer, from the positions stored with the events. ``group``: the partitions that the broker gives to this member
    of the group ``group_id``, from the group's committed offsets; a member that dies without a word keeps its
    partitions for ``session_timeout`` seconds.

    ``batch_size`` is the most messages stored in one transaction. ``request_timeout`` is the deadline of every call to
    a broker, in seconds; ``metadata_refresh`` the time between looks for new topics and partitions, in seconds.

    Raises :class:`WatcherDeclarationError` for a value that cannot work.
    """

    topics: tuple[str, ...] = ()
    bootstrap_servers: tuple[str, ...] = ()
    group_id: str | None = None
    auto_offset_reset: str = "earliest"
    connection_id: str | None = None
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    batch_size: int = 500
    request_timeout: float = 10.0
    metadata_refresh: float = 5.0
    assignment: str = "lease"
    session_timeout: float = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", _texts("topics", self.topics))
        servers = tuple(with_port(server) for server in _texts("bootstrap_servers", self.bootstrap_servers))
        object.__setattr__(self, "bootstrap_servers", tuple(sorted(set(servers))))
        self._check_topics()
        self._check_choices()
        self._check_numbers()
        if self.connection_id is None:
            self.check_complete()

    def _check_topics(self) -> None:
        if not self.topics:
            raise WatcherDeclarationError("kafka: no topic is named; expected kafka://host:port/topic[,topic]")
        for topic in self.topics:
            if not _TOPIC.match(topic) or topic in (".", ".."):
                raise WatcherDeclarationError(
                    f"kafka: {topic!r} is no topic name (letters, digits, '.', '_' and '-', at most 249)"
                )

    def _check_choices(self) -> None:
        for name, allowed in (
            ("security_protocol", _SECURITY_PROTOCOLS),
            ("sasl_mechanism", _SASL_MECHANISMS),
            ("auto_offset_reset", _RESETS),
            ("assignment", _ASSIGNMENTS),
        ):
            if getattr(self, name) not in allowed:
                raise WatcherDeclarationError(f"kafka: {name} must be one of {', '.join(allowed)}")
        if self.group_id is not None and not self.group_id.strip():
            raise WatcherDeclarationError("kafka: group_id must not be blank")

    def _check_numbers(self) -> None:
        for name, smallest, largest in (
            ("batch_size", 1, 10_000),
            ("request_timeout", 0.5, 300.0),
            ("metadata_refresh", 0.5, 30.0),
            ("session_timeout", 6.0, 300.0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not smallest <= value <= largest:
                raise WatcherDeclarationError(f"kafka: {name} must be a number from {smallest} to {largest}")
        if not isinstance(self.batch_size, int):
            raise WatcherDeclarationError("kafka: batch_size must be a whole number")

    def check_complete(self) -> None:
        """Raise :class:`WatcherDeclarationError` if something is missing that no connection will add."""
        if not self.bootstrap_servers:
            raise WatcherDeclarationError("kafka: no broker is named, neither by the queue nor by a connection")
        if self.uses_sasl and (self.sasl_username is None or self.sasl_password is None):
            raise WatcherDeclarationError(
                f"kafka: {self.security_protocol} needs a user name and a password; name a connection_id that has them"
            )

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def declared(self) -> dict[str, Any]:
        """The values that differ from their defaults, as JSON values: what identifies the trigger."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in _given(self).items()}


_CONNECTION_OPTIONS = frozenset(option.name for option in fields(KafkaSettings)) - {"topics", "connection_id"}


def parse_queue(queue: str) -> dict[str, Any]:
    """Read ``kafka://host:port[,host:port]/topic[,topic]`` into ``bootstrap_servers`` and ``topics``.

    Hosts may be left out (``kafka:///topic``) where a connection names them. Raises
    :class:`WatcherDeclarationError` for anything else, without repeating what may be a password.
    """
    parts = urlsplit(queue)
    expected = "expected kafka://host:port[,host:port]/topic[,topic]"
    if parts.scheme.lower() != "kafka":
        raise WatcherDeclarationError(f"kafka: not a Kafka queue; {expected}")
    if "@" in parts.netloc:
        raise WatcherDeclarationError(
            "kafka: a queue's address must hold no user name or password; name a connection_id that has them"
        )
    if parts.query or parts.fragment:
        raise WatcherDeclarationError("kafka: give options as keyword arguments, not in the queue's address")
    path = parts.path.removeprefix("/").removesuffix("/")
    if "/" in path:
        raise WatcherDeclarationError(f"kafka: {parts.path!r} is not a list of topics; {expected}")
    servers = [server for server in parts.netloc.split(",") if server]
    return {"bootstrap_servers": servers, "topics": [topic for topic in path.split(",") if topic]}


def with_connection(settings: KafkaSettings, connection: Connection) -> KafkaSettings:
    """``settings`` completed by ``connection``; what the trigger itself was told takes precedence.

    Host, port, login and password are the connection's; its extra values may be any option of the trigger but the
    topics, also in the dotted spelling of the field (``sasl.mechanism``). Raises :class:`WatcherDeclarationError`.
    """
    added: dict[str, Any] = {}
    if connection.host:
        port = "" if connection.port is None else f":{connection.port}"
        added["bootstrap_servers"] = tuple(f"{host}{port}" for host in connection.host.split(","))
    secrets = {"sasl_username": connection.login, "sasl_password": connection.password}
    added |= {name: value for name, value in secrets.items() if value is not None}
    for name, value in connection.extra.items():
        option = _ALIASES.get(name.replace(".", "_"), name.replace(".", "_"))
        if option not in _CONNECTION_OPTIONS:
            raise WatcherDeclarationError(f"kafka: connection {connection.conn_id!r} has an unknown option {name!r}")
        added[option] = _typed(option, value)
    completed = replace(settings, **{**added, **_given(settings)})
    completed.check_complete()
    return completed


def _given(settings: KafkaSettings) -> dict[str, Any]:
    return {f.name: getattr(settings, f.name) for f in fields(settings) if getattr(settings, f.name) != f.default}


_NUMBERS: dict[str, type] = {
    "batch_size": int,
    "request_timeout": float,
    "metadata_refresh": float,
    "session_timeout": float,
}


def _typed(option: str, value: Any) -> Any:
    """Options of a connection written as a URI are texts."""
    if not isinstance(value, str):
        return value
    if option == "ssl_check_hostname":
        return value.strip().lower() not in ("", "0", "false", "no", "off")
    try:
        return _NUMBERS.get(option, str)(value)
    except ValueError:
        raise WatcherDeclarationError(f"kafka: the connection's option {option} must be a number") from None


def with_port(server: str) -> str:
    """``host:port`` in one spelling; ``[address]:port`` for IPv6. Raises :class:`WatcherDeclarationError`."""
    parts = urlsplit(f"//{server}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path or "@" in server:
        raise WatcherDeclarationError("kafka: a broker is named host:port")
    return f"{f'[{host}]' if ':' in host else host}:{DEFAULT_PORT if port is None else port}"


def _texts(name: str, values: Iterable[str] | str) -> tuple[str, ...]:
    items = values.split(",") if isinstance(values, str) else list(values)
    if not all(isinstance(item, str) for item in items):
        raise WatcherDeclarationError(f"kafka: {name} must be a list of texts")
    return tuple(sorted({item.strip() for item in items if item.strip()}))
