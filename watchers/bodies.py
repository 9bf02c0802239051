"""What the bytes of a broker's message become: JSON if they strictly are, else text, else base64.

====================================================  =========================================================
body                                                  becomes
====================================================  =========================================================
strict JSON (RFC 8259) within the limits              its value, ``json``: ``0``, ``false``, ``null``, ``""``,
                                                      ``{}`` and ``[]`` are values like any other
empty                                                 ``""``, ``text``
only white space, or anything that is no JSON         the text as it is, ``text``
JSON after a byte order mark                          the text with its mark (U+FEFF), ``text``
``NaN``, ``Infinity``, a number that overflows to     the text as it is, ``text``
infinity, an integer beyond 64 bits, an object with
a key twice, a lone surrogate escape, over-deep
not UTF-8                                             standard padded base64 of the bytes, ``base64``
====================================================  =========================================================

``text`` and ``base64`` give back every byte. ``json`` gives back the value; a number with a fraction or exponent is
read as a double, as JSON's readers do (RFC 8259 §6).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from watchers.errors import PayloadRefused
from watchers.payloads import (
    LARGEST_INTEGER,
    MAX_PAYLOAD_BYTES,
    MAX_PAYLOAD_DEPTH,
    SMALLEST_INTEGER,
    PayloadLimits,
    encode_payload,
)

#: Limits of a body that becomes JSON: four levels are left for what the provider wraps around it.
BODY_LIMITS = PayloadLimits(max_bytes=MAX_PAYLOAD_BYTES, max_depth=MAX_PAYLOAD_DEPTH - 4)

#: Writing a number anew may lengthen it (``1e15`` is written ``1000000000000000.0``), never more than this.
_GROWTH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A decoded message body and how it was decoded."""

    value: Any
    encoding: Literal["json", "text", "base64"]

    def to_bytes(self) -> bytes:
        """The message's bytes again (for ``json``: an equivalent text)."""
        if self.encoding == "json":
            return json.dumps(self.value, ensure_ascii=False, allow_nan=False).encode()
        text: str = self.value
        return base64.b64decode(text) if self.encoding == "base64" else text.encode()


def decode_body(body: bytes, *, limits: PayloadLimits = BODY_LIMITS) -> Body:
    """Decode ``body`` by the table above. Never fails, never loses a byte."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return Body(value=base64.b64encode(body).decode("ascii"), encoding="base64")
    try:
        value = _strict_json(text, body=body, limits=limits)
    except (ValueError, RecursionError, PayloadRefused):
        return Body(value=text, encoding="text")
    return Body(value=value, encoding="json")


def _strict_json(text: str, *, body: bytes, limits: PayloadLimits) -> Any:
    if len(body) > limits.max_bytes:
        raise ValueError("larger than the limit")
    value = _DECODER.decode(text)
    deep = body.count(b"[") + body.count(b"{") > limits.max_depth
    if deep or b"\\u" in body or len(body) * _GROWTH > limits.max_bytes:
        encode_payload(value, max_bytes=limits.max_bytes, max_depth=limits.max_depth)
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20:  # 2**64 has 20 digits; longer texts are costly to read
        raise ValueError("integer beyond 64 bits")
    number = int(digits)
    if not SMALLEST_INTEGER <= number <= LARGEST_INTEGER:
        raise ValueError("integer beyond 64 bits")
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        raise ValueError("number overflows to infinity")
    return number


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a key twice")
    return members


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_number, parse_constant=_constant, object_pairs_hook=_unique_object
)
