"""Keeping secrets out of errors, tracebacks and log lines.

Two rules. A password in a URI is masked always. The texts among a trigger's kwargs are masked unless the trigger's
class declares the kwarg in ``public_kwargs``: a trigger cannot know which of its arguments are secrets, so all are.

Of a text of six or more characters every occurrence is masked, of one of three to five only those that stand alone
(between other characters than letters, digits and ``_``); shorter ones are no secrets, and masking them would make
every line unreadable. The lines of a text with several are masked each by itself, because a traceback shows lines.
A text is also recognised where it is quoted for a URI, for JSON or by ``repr()``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
#: Parts of a name that tell a secret, in lower case (the field's list).
SENSITIVE = (
    "access_token", "api_key", "apikey", "authorization", "passphrase", "passwd", "password", "private_key", "secret",
    "token", "keyfile_dict", "service_account",
)  # fmt: skip
_SHORTEST = 3
_SHORTEST_ANYWHERE = 6

#: ``://user:password@``. A password may contain ``@`` and ``:`` where someone forgot to quote them, so it ends at the
#: last ``@`` before the path. One with a ``/`` in it ends at the next ``@``, unless what it begins with is a port;
#: that search is bounded, or a text of many beginnings would take for ever.
_PASSWORD_IN_URI = re.compile(
    r"(?P<head>://[^\s:/?#@'\"]*):(?P<password>[^\s/?#'\"]+|(?!\d*(?:[/?#\s]|$))[^\s@]{1,512})@"
)


#: A text given under a telling name, as source code and ``repr()`` write it: ``password="…"``, ``'api_key': '…'``.
_GIVEN = re.compile(
    rf"(?P<head>\b\w{{0,60}}(?:{'|'.join(SENSITIVE)})\w{{0,60}}['\"]?\s{{0,9}}[=:]\s{{0,9}}[a-z]{{0,2}})"
    r"(?P<quote>['\"])(?:\\.|(?!(?P=quote)).)+(?P=quote)",
    re.IGNORECASE,
)


def redact_source(text: str) -> str:
    """``text``, a traceback with lines of source code say, without passwords in URIs and texts under telling names."""
    return redact_uri(_GIVEN.sub(rf"\g<head>\g<quote>{MASK}\g<quote>", text))


def redact_uri(text: str) -> str:
    """``text`` with the password of every URI in it masked."""
    return _PASSWORD_IN_URI.sub(rf"\g<head>:{MASK}@", text)


def passwords_in(text: str) -> Iterator[str]:
    """The password of every URI in ``text``."""
    yield from (match["password"] for match in _PASSWORD_IN_URI.finditer(text))


def tells_secret(name: str) -> bool:
    """Whether a value under this name is a secret: ``password``, ``api_key``, ``sasl-token``, …"""
    lowered = name.lower().replace("-", "_")
    return any(word in lowered for word in SENSITIVE)


def forms_of(texts: Iterable[str]) -> frozenset[str]:
    """Every spelling in which one of ``texts`` has to be masked."""
    return frozenset(form for text in texts for part in _parts(text) for form in _forms(part) if len(form) >= _SHORTEST)


def mask_texts(texts: Iterable[str]) -> Callable[[str], str]:
    """A function that masks ``texts``, and every password in a URI, in what it is given."""
    return mask_forms(forms_of(texts))


def mask_forms(forms: Iterable[str]) -> Callable[[str], str]:
    """The same for spellings of :func:`forms_of`."""
    # The longest first: a secret that contains another must not leave its rest behind.
    ordered = sorted(forms, key=len, reverse=True)
    if not ordered:
        return redact_uri
    pattern = re.compile("|".join(map(_pattern, ordered)))
    return lambda line: redact_uri(pattern.sub(MASK, line))


def masker_for(kwargs: Mapping[str, Any], public: Collection[str] = frozenset()) -> Callable[[str], str]:
    """A function that masks what must not be seen of a trigger's ``kwargs``, wherever in them it is.

    ``public`` are the names that may be seen (the class's ``public_kwargs``); of these, only passwords in URIs are
    masked. Names (keys) are never secrets.
    """
    texts: list[str] = []
    for name, value in kwargs.items():
        found = texts_in(value)
        if name in public:
            texts.extend(password for text in found for password in passwords_in(text))
        else:
            texts.extend(found)
    return mask_texts(texts)


def texts_in(value: Any) -> Iterator[str]:
    """All texts, paths and bytes in a value, wherever they are in it; names (keys) are none."""
    # Iterative, and each container once: kwargs come from anybody and may be anything.
    waiting, seen = [value], set[int]()
    while waiting:
        member = waiting.pop()
        if isinstance(member, str):
            yield str.__str__(member)
        elif isinstance(member, bytes):
            yield member.decode(errors="replace")
        elif isinstance(member, PurePath):
            yield str(member)
        elif isinstance(member, (dict, list, tuple, set, frozenset)) and id(member) not in seen:
            seen.add(id(member))
            waiting.extend(member.values() if isinstance(member, dict) else member)


def _parts(text: str) -> Iterator[str]:
    yield text
    yield from (line.strip() for line in text.splitlines())
    yield from passwords_in(text)


def _forms(text: str) -> Iterator[str]:
    yield text
    yield unquote(text)
    if not any("\ud800" <= character <= "\udfff" for character in text):
        yield quote(text, safe="")
        yield quote_plus(text)
    yield json.dumps(text)[1:-1]
    yield repr(text)[1:-1]


def _pattern(secret: str) -> str:
    escaped = re.escape(secret)
    return escaped if len(secret) >= _SHORTEST_ANYWHERE else rf"(?<!\w){escaped}(?!\w)"
