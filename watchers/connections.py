"""Connections and variables: what a pipeline file names and a deployment configures.

A connection is written as a URI or as a JSON object, in the field's formats, in the environment variable
``TIDEGATE_CONN_<ID>`` or ``AIRFLOW_CONN_<ID>`` (the id in upper case; the former wins)::

    kafka://user:p%40ss@broker:9093/schema?security_protocol=SASL_SSL
    {"conn_type": "aws", "login": "…", "password": "…", "extra": {"region_name": "eu-west-1"}}

A variable is the text of ``TIDEGATE_VAR_<KEY>`` or ``AIRFLOW_VAR_<KEY>``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from watchers.errors import ConnectionMalformed, ConnectionNotFound, VariableNotFound
from watchers.known_secrets import known_secrets

_PREFIXES = ("TIDEGATE", "AIRFLOW")
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where and as whom to connect. Password and the values of ``extra`` are shown by no ``repr()``."""

    conn_id: str
    conn_type: str = ""
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_text(cls, conn_id: str, text: str) -> Connection:
        """Read the URI or JSON form. Raises :class:`ConnectionMalformed`, which shows nothing of ``text``."""
        stripped = text.strip()
        return cls.from_json(conn_id, stripped) if stripped.startswith("{") else cls.from_uri(conn_id, stripped)

    @classmethod
    def from_uri(cls, conn_id: str, uri: str) -> Connection:
        """Read ``type://login:password@host:port/schema?option=value``, each part percent-encoded.

        ``?__extra__=<JSON object>`` gives options that are not texts. The host may carry a protocol of its own
        (``http://login:password@https://host``).
        """
        conn_type, separator, rest = uri.partition("://")
        if not separator or not conn_type:
            raise ConnectionMalformed(f"connection {conn_id!r}: a URI must begin with type://")
        rest, _, query = rest.partition("?")
        protocol = ""
        before, nested, after = rest.partition("://")
        if nested:
            user, at, protocol = before.rpartition("@")
            rest, protocol = f"{user}{at}{after}", f"{protocol}://"
        authority, _, schema = rest.partition("/")
        user, _, address = authority.rpartition("@")
        login, _, password = user.partition(":")
        host, port = _address(address, conn_id=conn_id)
        return cls(
            conn_id=conn_id,
            conn_type=_normal_type(conn_type),
            host=protocol + host if host else None,
            port=port,
            login=unquote(login) or None,
            password=unquote(password) or None,
            schema=unquote(schema) or None,
            extra=_options(query, conn_id=conn_id),
        )

    @classmethod
    def from_json(cls, conn_id: str, text: str) -> Connection:
        """Read a JSON object with the keys ``conn_type host port login password schema extra description``."""
        values = _object(text, conn_id=conn_id, what="the JSON form")
        values.pop("description", None)
        values.pop("conn_id", None)
        unknown = values.keys() - {"conn_type", "host", "port", "login", "password", "schema", "extra"}
        if unknown:
            raise ConnectionMalformed(f"connection {conn_id!r}: unknown keys: {', '.join(sorted(unknown))}")
        extra = values.pop("extra", None) or {}
        if isinstance(extra, str):
            extra = _object(extra, conn_id=conn_id, what="extra")
        if not isinstance(extra, dict):
            raise ConnectionMalformed(f"connection {conn_id!r}: extra must be an object")
        port = values.pop("port", None)
        for name, value in values.items():
            if value is not None and not isinstance(value, str):
                raise ConnectionMalformed(f"connection {conn_id!r}: {name} must be a text")
        conn_type = _normal_type(values.pop("conn_type", None) or "")
        number = None if port in (None, "") else _port(port, conn_id=conn_id)
        return cls(conn_id=conn_id, conn_type=conn_type, port=number, extra=extra, **values)


#: Answers with what it knows under this id or key, or ``None``. Called from coroutines: must be quick.
ConnectionResolver: TypeAlias = Callable[[str], Connection | None]
VariableResolver: TypeAlias = Callable[[str], str | None]


def connection_from_environment(conn_id: str) -> Connection | None:
    """The connection that the environment configures, or ``None``."""
    text = _from_environment("CONN", conn_id)
    return None if text is None else Connection.from_text(conn_id, text)


def variable_from_environment(key: str) -> str | None:
    """The variable that the environment configures, or ``None``."""
    return _from_environment("VAR", key)


@dataclass(slots=True)
class _Resolvers:
    connection: ConnectionResolver = connection_from_environment
    variable: VariableResolver = variable_from_environment


_resolvers = _Resolvers()
_MISSING: Any = object()


def get_connection(conn_id: str) -> Connection:
    """Return the connection ``conn_id``. Its secrets are masked in this process's logs from now on.

    Raises :class:`ConnectionNotFound` if none is configured, :class:`ConnectionMalformed` if it cannot be read.
    """
    found = _resolvers.connection(conn_id)
    if found is None:
        raise ConnectionNotFound(
            f"connection {conn_id!r} is not configured: set the environment variable TIDEGATE_CONN_{conn_id.upper()} "
            "to a URI (type://login:password@host:port/schema?option=value) or a JSON object"
        )
    known_secrets.add(found.password, name="password")
    known_secrets.add({"host": found.host, "extra": dict(found.extra)})
    return found


def get_variable(key: str, default: Any = _MISSING) -> Any:
    """Return the text of the variable ``key``, or ``default``. Raises :class:`VariableNotFound` without a default.

    Of a key that tells a secret (``db_password``, ``token``) the text is masked in this process's logs from now on.
    """
    found = _resolvers.variable(key)
    if found is not None:
        known_secrets.add(found, name=key)
        return found
    if default is _MISSING:
        raise VariableNotFound(
            f"variable {key!r} is not configured: set the environment variable TIDEGATE_VAR_{key.upper()}"
        )
    return default


def set_connection_resolver(resolver: ConnectionResolver | None) -> ConnectionResolver:
    """Look connections up with ``resolver`` (``None``: the environment) and return the resolver before it."""
    before = _resolvers.connection
    _resolvers.connection = resolver or connection_from_environment
    return before


def set_variable_resolver(resolver: VariableResolver | None) -> VariableResolver:
    """Look variables up with ``resolver`` (``None``: the environment) and return the resolver before it."""
    before = _resolvers.variable
    _resolvers.variable = resolver or variable_from_environment
    return before


def _from_environment(kind: str, name: str) -> str | None:
    for prefix in _PREFIXES:
        text = os.environ.get(f"{prefix}_{kind}_{name.upper()}")
        if text is not None:
            return text
    return None


def _normal_type(conn_type: str) -> str:
    return conn_type.lower().replace("-", "_")


def _address(address: str, *, conn_id: str) -> tuple[str, int | None]:
    if address.startswith("["):  # an IPv6 address
        host, bracket, port = address[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ConnectionMalformed(f"connection {conn_id!r}: the host's brackets do not match")
        port = port[1:]
    else:
        host, _, port = address.partition(":")
    return unquote(host), _port(port, conn_id=conn_id) if port else None


def _port(port: object, *, conn_id: str) -> int:
    try:
        number = int(unquote(port) if isinstance(port, str) else port)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= _HIGHEST_PORT:
        raise ConnectionMalformed(f"connection {conn_id!r}: the port must be a number from 0 to {_HIGHEST_PORT}")
    return int(number)


def _options(query: str, *, conn_id: str) -> dict[str, Any]:
    options: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    whole = options.pop("__extra__", None)
    return options if whole is None else {**options, **_object(whole, conn_id=conn_id, what="__extra__")}


def _object(text: str, *, conn_id: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):  # the reader's error would show a piece of the text
        raise ConnectionMalformed(f"connection {conn_id!r}: {what} is no JSON object") from None
    return value
