"""The canonical text of a trigger's keyword arguments, and the identity made from it.

Equal arguments have one text, in every process, on every machine and for every ``PYTHONHASHSEED``; arguments that
differ in value or in type differ in text (``1``, ``1.0`` and ``True``; the two Unicode forms of ``é``). The text is
JSON with sorted keys. What JSON has no form for is an object with the key ``__type__``:

==========================================  ==========================================================================
value                                       form
==========================================  ==========================================================================
``None bool str list``, finite ``float``,   themselves
``int`` of up to 64 bits
larger ``int``                              ``int``: hexadecimal text
``nan inf -inf``                            ``float``: text
``dict``                                    itself; with a key that is no text, or with ``__type__``: ``dict``, pairs
                                            sorted by the text of the key
``tuple``; ``set``, ``frozenset``           members in order; members sorted by their text
``bytes``                                   base64
``datetime``                                ISO text with offset, ``fold``, and the key of its ``ZoneInfo``; any other
                                            time zone becomes its fixed offset
``date``, ``time``, ``timedelta``           ISO text; ISO text as above; days, seconds and microseconds
``enum`` member                             class path and name (a combined flag: its value)
``PurePath`` and its subclasses             name of the class, text
``Decimal``, ``UUID``                       text
==========================================  ==========================================================================

Anything else is refused with its place: objects, functions, subclasses that would come back as their base (a
``namedtuple``), cycles, lone surrogates, nesting over 100, text over the size limit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from watchers.encoding_rules import MAX_DEPTH, decode_tagged, encode_value
from watchers.errors import EncodingRefused
from watchers.locations import Location

#: Made once: a runner decodes the arguments of thousands of triggers, and making a decoder takes longer than using it.
_DECODER = json.JSONDecoder(object_hook=decode_tagged)
#: Largest text of a trigger's kwargs, in UTF-8 bytes.
MAX_KWARGS_BYTES = 64 * 1024


def encode_kwargs(kwargs: Mapping[str, Any], *, max_bytes: int = MAX_KWARGS_BYTES) -> str:
    """Return the canonical text of ``kwargs``. Raises :class:`EncodingRefused`, which shows types, never contents."""
    for name in kwargs:
        if type(name) is not str:
            raise EncodingRefused(f"a keyword argument's name must be text, not {type(name).__name__}", path="kwargs")
    _check_parts(kwargs, most=max_bytes)
    try:
        text = canonical_json(encode_value(dict(kwargs), Location.root("kwargs")))
        size = len(text.encode())
    except EncodingRefused:
        raise
    except Exception as error:  # code of the values' own classes ran
        raise EncodingRefused(f"a value cannot be read: {type(error).__name__}", path="kwargs") from error
    if size > max_bytes:
        raise EncodingRefused(f"{size} bytes of text, more than {max_bytes}", path="kwargs")
    return text


def decode_kwargs(text: str) -> dict[str, Any]:
    """Return arguments equal to those that :func:`encode_kwargs` was given, of the same types.

    Raises :class:`EncodingRefused` if ``text`` was not made by it, or names a class that cannot be imported here.
    """
    try:
        kwargs = _DECODER.decode(text)
    except EncodingRefused:
        raise
    except Exception as error:
        raise EncodingRefused(f"no text of keyword arguments: {type(error).__name__}", path="kwargs") from error
    if not isinstance(kwargs, dict):
        raise EncodingRefused("no text of keyword arguments", path="kwargs")
    return kwargs


def trigger_identity(classpath: str, encoded_kwargs: str) -> str:
    """SHA-256, in hexadecimal, of a trigger's class path and the canonical text of its keyword arguments."""
    return hashlib.sha256(f"{classpath}\0{encoded_kwargs}".encode()).hexdigest()


def _check_parts(kwargs: Mapping[str, Any], *, most: int) -> None:
    """Refuse a value that shares its parts so often that it is a small graph but an enormous tree."""
    waiting, parts = [(value, 0) for value in kwargs.values()], 0
    while waiting:
        value, depth = waiting.pop()
        parts += 1
        if parts > most:
            raise EncodingRefused(f"more than {most} parts, or contains itself", path="kwargs")
        if depth > MAX_DEPTH:  # refused with its place by the encoder
            continue
        if type(value) is dict:
            waiting.extend((member, depth + 1) for member in value.values())
        elif type(value) in {list, tuple, set, frozenset}:
            waiting.extend((member, depth + 1) for member in value)


def canonical_json(plain: Any) -> str:
    """The one JSON text of a plain value."""
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
