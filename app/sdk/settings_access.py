"""``var`` and ``conn`` of a task's context: variables and connections by attribute."""

from __future__ import annotations

from typing import Any

from app.sdk.variables import Variable
from watchers.connections import Connection, get_connection
from watchers.errors import ConnectionNotFound, VariableNotFound


class VariableAccess:
    """``var.value.name`` (text) and ``var.json.name`` (read as JSON); ``.get(name, default)`` for one that may lack."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def get(self, name: str, default: Any = None) -> Any:
        """The variable, or ``default``."""
        return Variable.get(name, default, deserialize_json=self._as_json)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return Variable.get(name, deserialize_json=self._as_json)
        except VariableNotFound as error:
            raise MissingSetting(str(error)) from None

    __getitem__ = __getattr__


class ConnectionAccess:
    """``conn.name``; ``.get(name, default)`` for one that may lack."""

    def get(self, name: str, default: Any = None) -> Any:
        """The connection, or ``default``."""
        try:
            return get_connection(name)
        except ConnectionNotFound:
            return default

    def __getattr__(self, name: str) -> Connection:
        if name.startswith("__"):
            raise AttributeError(name)
        return get_connection(name)

    __getitem__ = __getattr__


class MissingSetting(LookupError):
    """A variable is not configured. No ``AttributeError``: a template would read that as an undefined name."""
