"""One rule a type: to its canonical form (see ``watchers.encoding``) and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from watchers.connections import Connection
from watchers.errors import EncodingRefused, WatcherDeclarationError
from watchers.importing import import_class, path_of
from watchers.locations import Location

MAX_DEPTH = 100
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_TAG = "__type__"
_PATHS: dict[str, type[PurePath]] = {
    kind.__name__: kind for kind in (PosixPath, PurePosixPath, PureWindowsPath, WindowsPath)
}


def encode_value(value: Any, at: Location, depth: int = 0) -> Any:
    """The plain form of ``value``. Raises :class:`EncodingRefused`."""
    if depth > MAX_DEPTH:
        raise EncodingRefused(f"nested deeper than {MAX_DEPTH}, or contains itself", path=str(at))
    kind = type(value)
    container = _CONTAINERS.get(kind)
    if container is not None:
        return container(value, at, depth + 1)
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value, at)
    if isinstance(value, Enum):
        return _enum(value, at)
    if isinstance(value, PurePath) and kind in _PATHS.values():
        return _tagged(kind.__name__, value=_text(str(value), at))
    for base in (datetime, date, time, timedelta):  # subclasses exist that add methods, not meaning
        if isinstance(value, base):
            return _as_base(base, value, at)
    raise EncodingRefused(_why_not(value), path=str(at))


def _tagged(tag: str, **form: Any) -> dict[str, Any]:
    return {_TAG: tag, **form}


def _canonical(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _why_not(value: Any) -> str:
    kind = type(value)
    if isinstance(value, Connection):
        return "a Connection holds secrets: pass its connection id instead"
    if isinstance(value, (FunctionType, BuiltinFunctionType, MethodType, type)):
        return f"a {kind.__name__} cannot be carried to another process: pass its import path as text instead"
    bases = [base for base in (*_SCALARS, *_CONTAINERS) if isinstance(value, base)]
    if bases:
        return f"{path_of(kind)} would come back as {bases[0].__name__}: convert it first"
    return f"{path_of(kind)} has no defined encoding"


# ------------------------------------------------------------------------------------------------- scalars


def _text(value: str, at: Location) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise EncodingRefused("text with a lone surrogate", path=str(at)) from None
    return value


def _integer(value: int, _at: Location) -> Any:
    return value if _SMALLEST <= value <= _LARGEST else _tagged("int", value=hex(value))


def _float(value: float, _at: Location) -> Any:
    return value if value - value == 0.0 else _tagged("float", value=repr(value))


def _bytes(value: bytes, _at: Location) -> Any:
    return _tagged("bytes", value=base64.b64encode(value).decode("ascii"))


def _datetime(value: datetime, at: Location) -> Any:
    return _tagged("datetime", value=value.isoformat(), **_zone(value.tzinfo, value.fold, at))


def _time(value: time, at: Location) -> Any:
    return _tagged("time", value=value.isoformat(), **_zone(value.tzinfo, value.fold, at))


def _zone(zone: tzinfo | None, fold: int, at: Location) -> dict[str, Any]:
    form: dict[str, Any] = {"fold": fold} if fold else {}
    if isinstance(zone, ZoneInfo):
        if not zone.key:
            raise EncodingRefused("a time zone read from a file has no name that another machine knows", path=str(at))
        form["zone"] = zone.key
    return form


def _timedelta(value: timedelta, _at: Location) -> Any:
    return _tagged("timedelta", value=[value.days, value.seconds, value.microseconds])


def _as_base(base: type[Any], value: Any, at: Location) -> Any:
    """A subclass's value as its base's, if nothing is lost by that."""
    form = _SCALARS[base](value, at)
    if not decode_tagged(dict(form)) == value:
        raise EncodingRefused(f"{path_of(type(value))} would lose a part as {base.__name__}", path=str(at))
    return form


def _enum(value: Enum, at: Location) -> Any:
    kind = type(value)
    try:
        importable = import_class(path_of(kind)) is kind
    except WatcherDeclarationError as error:
        raise EncodingRefused(str(error), path=str(at)) from error
    if not importable:
        raise EncodingRefused(f"{path_of(kind)} is another class by now", path=str(at))
    if isinstance(value, Flag) and kind.__members__.get(value.name or "") is not value:
        return _tagged("flag", enum=path_of(kind), value=int(value.value))
    return _tagged("enum", enum=path_of(kind), name=value.name)


_SCALARS: dict[type[Any], Callable[[Any, Location], Any]] = {
    type(None): lambda value, _at: value,
    bool: lambda value, _at: value,
    str: _text,
    int: _integer,
    float: _float,
    bytes: _bytes,
    datetime: _datetime,
    date: lambda value, _at: _tagged("date", value=value.isoformat()),
    time: _time,
    timedelta: _timedelta,
    Decimal: lambda value, _at: _tagged("Decimal", value=str(value)),
    UUID: lambda value, _at: _tagged("UUID", value=str(value)),
}


# ---------------------------------------------------------------------------------------------- containers


def _list(value: Any, at: Location, depth: int) -> list[Any]:
    return [encode_value(member, at.member(index), depth) for index, member in enumerate(value)]


def _tuple(value: Any, at: Location, depth: int) -> Any:
    return _tagged("tuple", value=_list(value, at, depth))


def _set(value: Any, at: Location, depth: int) -> Any:
    return _tagged(type(value).__name__, value=sorted(_list(value, at, depth), key=_canonical))


def _dict(value: Any, at: Location, depth: int) -> Any:
    if _TAG not in value and all(type(key) is str for key in value):
        return {_text(key, at): encode_value(member, at.member(key), depth) for key, member in value.items()}
    pairs = [
        [encode_value(key, at, depth), encode_value(member, at.member(f"{key!r}"), depth)]
        for key, member in value.items()
    ]
    return _tagged("dict", value=sorted(pairs, key=lambda pair: _canonical(pair[0])))


_CONTAINERS: dict[type[Any], Callable[[Any, Location, int], Any]] = {
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _dict,
}


# ----------------------------------------------------------------------------------------------- the way back


def decode_tagged(form: dict[str, Any]) -> Any:
    """The value of an object whose members are decoded already. Raises :class:`EncodingRefused`."""
    tag = form.get(_TAG)
    if tag is None:
        return form
    if tag in _PATHS:
        return _PATHS[tag](form["value"])
    if tag not in _DECODERS:
        raise EncodingRefused(f"unknown kind of value {tag!r}", path="kwargs")
    return _DECODERS[tag](form)


def _decode_zoned(kind: type[Any]) -> Callable[[dict[str, Any]], Any]:
    def decode(form: dict[str, Any]) -> Any:
        value = kind.fromisoformat(form["value"])
        if "zone" in form:
            value = value.replace(tzinfo=ZoneInfo(form["zone"]))
        return value.replace(fold=form.get("fold", 0))

    return decode


def _decode_enum(form: dict[str, Any]) -> Any:
    try:
        kind = import_class(form["enum"])
    except WatcherDeclarationError as error:
        raise EncodingRefused(str(error), path="kwargs") from error
    if not issubclass(kind, Enum):
        raise EncodingRefused(f"{form['enum']} is no enum", path="kwargs")
    return kind(form["value"]) if form[_TAG] == "flag" else kind[form["name"]]


_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "int": lambda form: int(form["value"], 16),
    "float": lambda form: float(form["value"]),
    "bytes": lambda form: base64.b64decode(form["value"], validate=True),
    "datetime": _decode_zoned(datetime),
    "time": _decode_zoned(time),
    "date": lambda form: date.fromisoformat(form["value"]),
    "timedelta": lambda form: timedelta(*form["value"]),
    "Decimal": lambda form: Decimal(form["value"]),
    "UUID": lambda form: UUID(form["value"]),
    "enum": _decode_enum,
    "flag": _decode_enum,
    "tuple": lambda form: tuple(form["value"]),
    "set": lambda form: set(form["value"]),
    "frozenset": lambda form: frozenset(form["value"]),
    "dict": lambda form: dict(form["value"]),
}
