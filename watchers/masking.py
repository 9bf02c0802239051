"""Keeping secrets out of errors, tracebacks and log lines.

Two rules. A password in a URI is masked always. The texts among a trigger's kwargs are masked unless the trigger's
class declares the kwarg in ``public_kwargs``: a trigger cannot know which of its arguments are secrets, so all are.
"""

from __future__ import annotations

import re

MASK = "***"

#: ``scheme://user:password@``. A password may contain ``@`` and ``:`` where someone forgot to quote them, so it
#: ends at the last ``@`` before the path.
_PASSWORD_IN_URI = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.\-]*://[^\s:/?#@'\"]*):(?P<password>[^\s/?#'\"]+)@")


def redact_uri(text: str) -> str:
    """``text`` with the password of every URI in it masked."""
    return _PASSWORD_IN_URI.sub(rf"\g<head>:{MASK}@", text)
