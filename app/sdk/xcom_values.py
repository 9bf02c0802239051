"""XCom values as text: the encoding of trigger arguments, so that the same types come back."""

from __future__ import annotations

import json
from typing import Any

from watchers.encoding_rules import decode_tagged, encode_value
from watchers.errors import EncodingRefused
from watchers.locations import Location

#: Largest text of one XCom, in UTF-8 bytes. An outcome with its XComs must fit a frame.
MAX_XCOM_BYTES = 2 * 1024 * 1024


def encode_xcom(value: Any, *, name: str) -> str:
    """The canonical text of ``value``.

    Raises :class:`EncodingRefused` with the place in the value; ``name`` says what it is (``return value``).
    """
    try:
        plain = encode_value(value, Location.root(name))
        # The order of a dictionary is kept: nobody compares these texts, and authors print what comes back.
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except EncodingRefused as error:
        raise EncodingRefused(f"{error.reason}; an XCom takes plain values only", path=error.path) from None
    except (UnicodeEncodeError, ValueError, RecursionError) as error:
        raise EncodingRefused(f"the value cannot be written: {error}", path=name) from None
    if size > MAX_XCOM_BYTES:
        raise EncodingRefused(f"{size} bytes of text, more than {MAX_XCOM_BYTES}; pass a reference instead", path=name)
    return text


def decode_xcom(text: str) -> Any:
    """The value :func:`encode_xcom` was given, of the same types."""
    return json.loads(text, object_hook=decode_tagged)
