"""What may be the payload of an event, and its JSON text.

=====================================  ===============================================================================
value                                  becomes
=====================================  ===============================================================================
``None``, ``bool``, ``str``            itself; NUL is kept
``int``                                itself if it fits 64 bits, signed or unsigned (−2⁶³ … 2⁶⁴−1); else *range*
``float``                              itself if finite; else *nan*
``dict`` with ``str`` keys             object, in its own order; any other key is refused as *key*
``list``, ``tuple``                    array
``set``, ``frozenset``                 array, sorted by the JSON text of its members
``bytes``, ``bytearray``,              ``{"__type__": "bytes", "base64": "…"}`` (standard alphabet, padded)
``memoryview``
``datetime``, ``date``, ``time``       ISO 8601 text; the offset is kept, a naive one stays naive
``enum`` member                        its value
``UUID``, ``Path``, ``Decimal``        text; a ``Decimal`` that is not finite is refused as *nan*
anything else                          refused as *type* (``timedelta`` too: say which unit you mean)
=====================================  ===============================================================================

Further refusals: *cycle* (a container inside itself), *surrogate* (text that is not Unicode scalar values), *depth*
(containers nested deeper than the limit), *size* (UTF-8 bytes of the JSON text over the limit).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, NoReturn
from uuid import UUID

from watchers.errors import PayloadRefused
from watchers.locations import Location

#: Largest payload, in UTF-8 bytes of its JSON text.
MAX_PAYLOAD_BYTES = 1024 * 1024
#: Deepest nesting of containers; ``[]`` has depth 1.
MAX_PAYLOAD_DEPTH = 100
SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLimits:
    """How large (UTF-8 bytes of JSON text) and how deep (nested containers) a payload may be."""

    max_bytes: int = MAX_PAYLOAD_BYTES
    max_depth: int = MAX_PAYLOAD_DEPTH


def encode_payload(value: object, *, max_bytes: int = MAX_PAYLOAD_BYTES, max_depth: int = MAX_PAYLOAD_DEPTH) -> str:
    """Return the compact JSON text of ``value``.

    Raises :class:`PayloadRefused`, and nothing else, with a ``code`` of ``nan cycle key type range surrogate depth
    size`` and the place in the value. The message names types and places, never contents.
    """
    try:
        text = _ordinary_text(value, max_bytes=max_bytes, max_depth=max_depth)
        if text is None:
            plain = _Plainer(max_bytes=max_bytes, max_depth=max_depth).plain(value, Location.root("payload"), 0)
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        too_large = len(text) > max_bytes or (not text.isascii() and len(text.encode()) > max_bytes)
    except PayloadRefused:
        raise
    except RecursionError as error:
        raise PayloadRefused("nested too deep for this process's stack", code="depth", path="payload") from error
    except MemoryError as error:
        raise PayloadRefused("too large for this process's memory", code="size", path="payload") from error
    except Exception as error:  # code of the value's own classes ran: a time zone, a released buffer, an odd subclass
        reason = f"{type(value).__name__} cannot be read: {type(error).__name__}"
        raise PayloadRefused(reason, code="type", path="payload") from error
    if too_large:
        _refuse_size(max_bytes)
    return text


def bytes_envelope(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The JSON form of binary data inside a payload."""
    return {"__type__": "bytes", "base64": base64.b64encode(bytes(data)).decode("ascii")}


def _refuse_size(max_bytes: int) -> NoReturn:
    raise PayloadRefused(f"larger than {max_bytes} bytes of JSON text", code="size", path="payload")


class _Unusual(Exception):
    """The value needs conversion or is refused: the slower way says which."""


#: The nesting, the keys and the sizes were checked before, so a check for cycles would only cost.
_ORDINARY = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


def _ordinary_text(value: object, *, max_bytes: int, max_depth: int) -> str | None:
    """The JSON text, by the quick way, of a value of JSON's own types and tuples only; ``None`` for any other."""
    try:
        if _spend_ordinary([value], max_bytes + 3, max_depth + 1) < 0:  # 3 for the list around it
            _refuse_size(max_bytes)
        text = _ORDINARY.encode(value)
        if not text.isascii():
            text.encode()
    except (_Unusual, ValueError):  # ValueError: a number that is not finite, a lone surrogate
        return None
    return text


def _spend_ordinary(container: Any, budget: int, levels: int) -> int:
    """What is left of ``budget``, in characters, after the least that ``container`` takes as JSON text."""
    if levels == 0:
        raise _Unusual
    budget -= 2
    members = container
    if type(container) is dict:
        members = container.values()
        budget = _spend_keys(container, budget)
    for member in members:
        kind = type(member)
        if kind is str:
            budget -= len(member) + 2
        elif kind is dict or kind is list or kind is tuple:
            budget = _spend_ordinary(member, budget, levels - 1)
        elif kind is int:
            if not SMALLEST_INTEGER <= member <= LARGEST_INTEGER:
                raise _Unusual
        elif kind is not float and kind is not bool and member is not None:
            raise _Unusual
        budget -= 1
        if budget < 0:
            return budget
    return budget


def _spend_keys(keys: dict[Any, Any], budget: int) -> int:
    for key in keys:
        if type(key) is not str:
            raise _Unusual
        budget -= len(key) + 3
    return budget


class _Plainer:
    """One conversion to plain JSON values, stopped as soon as the result is certain to be too large.

    The budget also bounds values that share parts: such a value is a small graph but an enormous tree.
    """

    __slots__ = ("_active", "_budget", "_max_bytes", "_max_depth")

    def __init__(self, *, max_bytes: int, max_depth: int) -> None:
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._budget = max_bytes
        self._active: set[int] = set()

    def plain(self, value: Any, at: Location, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value, at)
        if kind is bool or value is None:
            self._spend(1)
            return value
        if kind is int:
            return self._integer(value, at)
        if kind is float:
            return self._float(value, at)
        if kind is dict or kind is list:
            return self._container(value, at, depth)
        return self._unusual(value, at, depth)

    def _spend(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            _refuse_size(self._max_bytes)

    def _text(self, value: str, at: Location) -> str:
        self._spend(str.__len__(value) + 2)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise PayloadRefused("text with a lone surrogate", code="surrogate", path=str(at)) from None
        return value

    def _integer(self, value: int, at: Location) -> int:
        self._spend(1)
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise PayloadRefused("integer beyond 64 bits", code="range", path=str(at))
        return value

    def _number(self, value: int | float, at: Location) -> int | float:
        """A number of a subclass, read without the subclass's own code."""
        if isinstance(value, int):
            return self._integer(int.__int__(value), at)
        return self._float(float.__float__(value), at)

    def _float(self, value: float, at: Location) -> float:
        self._spend(1)
        if value - value != 0.0:
            raise PayloadRefused("number that is not finite", code="nan", path=str(at))
        return value

    def _unusual(self, value: Any, at: Location, depth: int) -> Any:
        """Enum members first: they may also be ``str`` or ``int``."""
        if isinstance(value, Enum):
            return self._member_value(value, at, depth)
        if isinstance(value, str):
            return self._text(str.__str__(value), at)
        if isinstance(value, (int, float)):
            return self._number(value, at)
        if isinstance(value, (bytes, bytearray, memoryview)):
            size = value.nbytes if isinstance(value, memoryview) else len(value)
            self._spend(size // 3 * 4)
            return bytes_envelope(value)
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return self._container(value, at, depth)
        return self._text(_as_text(value, at), at)

    def _container(self, value: Any, at: Location, depth: int) -> Any:
        if depth >= self._max_depth:
            code = "cycle" if id(value) in self._active else "depth"
            reason = "contains itself" if code == "cycle" else f"nested deeper than {self._max_depth}"
            raise PayloadRefused(reason, code=code, path=str(at))
        self._spend(2)
        self._enter(value, at)
        converted: Any
        if isinstance(value, dict):
            converted = self._object(value, at, depth + 1)
        elif isinstance(value, list):
            converted = self._array(list.__iter__(value), at, depth + 1)
        elif isinstance(value, tuple):
            converted = self._array(tuple.__iter__(value), at, depth + 1)
        else:
            members = set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)
            converted = self._array(members, at, depth + 1)
            converted.sort(key=lambda member: json.dumps(member, sort_keys=True))
        self._active.discard(id(value))
        return converted

    def _member_value(self, value: Enum, at: Location, depth: int) -> Any:
        self._enter(value, at)
        converted = self.plain(value.value, at, depth)
        self._active.discard(id(value))
        return converted

    def _enter(self, value: object, at: Location) -> None:
        if id(value) in self._active:
            raise PayloadRefused("contains itself", code="cycle", path=str(at))
        self._active.add(id(value))

    def _object(self, value: dict[Any, Any], at: Location, depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, member in dict.items(value):
            if not isinstance(key, str):
                raise PayloadRefused(f"key of type {type(key).__name__}, not text", code="key", path=str(at))
            name = self._text(str.__str__(key), at.member(key))
            plain[name] = self.plain(member, at.member(name), depth)
        return plain

    def _array(self, members: Iterator[Any], at: Location, depth: int) -> list[Any]:
        return [self.plain(member, at.member(index), depth) for index, member in enumerate(members)]


def _as_text(value: Any, at: Location) -> str:
    """Text of the scalar types that have an unmistakable one."""
    if isinstance(value, (date, time)):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise PayloadRefused("number that is not finite", code="nan", path=str(at))
        return str(value)
    raise PayloadRefused(f"{type(value).__name__} is no JSON value", code="type", path=str(at))
