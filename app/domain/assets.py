"""Names and URIs of assets: which spellings mean the same asset, and which are refused.

The rules are the same on every installation: no provider adds to them. ``docs/assets.md`` is the table for authors.
A URI is an identifier, not an address to fetch: beyond the steps of :func:`normalise_uri` it is compared as text,
because an authority may be a bucket, a table or an account whose case matters.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

#: Longest name, URI and group, in characters.
MAX_LENGTH = 1500
RESERVED_NAMES = frozenset({"self", "context"})
RESERVED_SCHEME = "airflow"

_URI = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):)?(?://(?P<authority>[^/?#]*))?"
    r"(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetIdentity:
    """What tells one asset from another. ``password_dropped`` is true if the text given held one."""

    name: str
    uri: str
    password_dropped: bool = False


def identify(*, name: str | None, uri: str | None) -> AssetIdentity:
    """The identity of an asset of which ``name``, ``uri`` or both are given; one fills the other.

    A name filled from the URI keeps its spelling (scheme case, order of the query), less a password.

    Raises :class:`TypeError` if neither is given or one is no text, :class:`ValueError` if one breaks a rule. No
    message contains a password.
    """
    if name is None and uri is None:
        raise TypeError("an asset needs a name, a uri, or both")
    clean_name, name_held = without_password(
        _text(uri if name is None else name, "name" if name is not None else "uri")
    )
    clean_uri, uri_held = without_password(_text(name if uri is None else uri, "uri" if uri is not None else "name"))
    return AssetIdentity(
        name=_checked_name(clean_name), uri=normalise_uri(clean_uri), password_dropped=name_held or uri_held
    )


def normalise_uri(uri: str) -> str:
    """The one spelling of ``uri`` that is stored and compared. Doing it twice changes nothing.

    1. Unicode is composed (NFC). Text without a scheme is left as it is otherwise.
    2. The scheme is lower-cased. A scheme beginning with ``x-`` ends the list here; ``airflow`` is refused.
    3. A password is dropped, the user kept.
    4. Query parameters are sorted and written in one form; those without a value are lost. The fragment is dropped.
    5. Slashes at the end of the path are removed; an empty path becomes ``/``. ``file:/a`` becomes ``file:///a``.

    Raises :class:`ValueError` for blank or over-long text, white space at an end, control characters and the reserved
    scheme.
    """
    text, _ = without_password(_text(uri, "uri"))
    parts = _parts(text)
    scheme = parts["scheme"]
    if scheme is None:
        return text
    scheme = scheme.lower()
    if scheme == RESERVED_SCHEME:
        raise ValueError(f"asset uri: the scheme {RESERVED_SCHEME!r} is reserved")
    if scheme.startswith("x-"):
        return text
    authority = parts["authority"]
    path = (parts["path"] or "").rstrip("/") or "/"
    if authority is None and scheme == "file" and path.startswith("/"):
        authority = ""
    normalised = f"{scheme}:{'' if authority is None else '//' + authority}{path}{_sorted_query(parts['query'])}"
    return _within_length(normalised, "uri")


def without_password(text: str) -> tuple[str, bool]:
    """``text`` less the password of its authority, and whether there was one.

    Raises :class:`ValueError` if the authority seems to hold a password with an unquoted ``/``, ``?`` or ``#``.
    """
    if _SCHEME.match(text) is None and not text.startswith("//"):
        return text, False
    authority = _parts(text)["authority"] or ""
    start = text.index("//") + 2
    rest = text[start + len(authority) :]
    user_info, _, host = authority.rpartition("@")
    user, colon, password = user_info.partition(":")
    port = host.rpartition(":")[2] if ":" in host else ""
    if not user and port and not port.isdecimal() and "@" in rest and "," not in host:
        raise ValueError(
            "asset uri: the part after '//' is malformed; quote '/', '?' and '#' in a password, or omit it"
        )
    if not colon:
        return text, False
    return f"{text[:start]}{user + '@' if user else ''}{host}{rest}", bool(password)


def checked_group(group: str) -> str:
    """``group`` if it keeps the rules: text of at most :data:`MAX_LENGTH`, empty or not blank; else an error."""
    if not isinstance(group, str):
        raise TypeError(f"asset group must be text, not {type(group).__name__}")
    return _text(group, "group") if group else group


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"asset {what} must be text, not {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"asset {what} must not be blank")
    if len(value) > MAX_LENGTH:
        raise ValueError(f"asset {what} is {len(value)} characters long; the limit is {MAX_LENGTH}")
    if found := _CONTROL.search(value):
        raise ValueError(f"asset {what} has a control character (U+{ord(found[0]):04X}) at position {found.start()}")
    if value != value.strip():
        raise ValueError(f"asset {what} must not begin or end with white space")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"asset {what} has a lone surrogate at position {error.start}") from None
    return _within_length(unicodedata.normalize("NFC", value), what)


def _checked_name(name: str) -> str:
    if name in RESERVED_NAMES:
        raise ValueError(f"asset name {name!r} is reserved: it is the name of a parameter of task functions")
    return name


def _within_length(value: str, what: str) -> str:
    if len(value) > MAX_LENGTH:
        raise ValueError(f"asset {what} is {len(value)} characters long once normalised; the limit is {MAX_LENGTH}")
    return value


def _parts(text: str) -> dict[str, str | None]:
    found = _URI.fullmatch(text)
    assert found is not None, "the pattern takes any text"
    return found.groupdict()


def _sorted_query(query: str | None) -> str:
    parameters = sorted(parse_qsl(query or "", errors="surrogateescape"))
    return "?" + urlencode(parameters, errors="surrogateescape") if parameters else ""
