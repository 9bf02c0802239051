"""The secrets that this process has looked up, so that its logs and errors can leave them out.

What :func:`watchers.get_connection` answers adds the password, and what telling names among the options hold; what
:func:`watchers.get_variable` answers adds the text of a telling key, and what telling names in a JSON text hold. The
password of a URI is a secret under any name. What is masked of a text, and which are too short, says
:mod:`watchers.masking`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from watchers.masking import mask_texts, passwords_in, redact_uri, tells_secret, texts_in

#: Texts remembered at most; with more, the oldest are forgotten (values that change all the time).
LIMIT = 1000
#: What switches under telling names say (``use_token=true``). Masked, they would make every line unreadable.
_NO_SECRETS = frozenset({"true", "false", "none", "null", "yes", "no"})


class KnownSecrets:
    """Texts to be masked. Safe to use from any thread, and after a fork."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._mask: Callable[[str], str] = redact_uri
        self._lock = threading.Lock()

    def renew_lock(self) -> None:
        """Call it in a forked process: the thread that held the lock may not exist there."""
        self._lock = threading.Lock()

    def add(self, value: Any, *, name: str = "") -> None:
        """Remember the secrets in ``value``, which is known under ``name``."""
        new = [text for text in _secrets_in(value, name=name) if text not in self._texts]
        if not new:
            return
        with self._lock:
            self._texts.update(dict.fromkeys(new))
            for oldest in list(self._texts)[:-LIMIT]:
                del self._texts[oldest]
            self._mask = mask_texts(self._texts)

    def forget_all(self) -> None:
        """Remember nothing more, as a process that has just started."""
        with self._lock:
            self._texts, self._mask = {}, redact_uri

    def mask(self, text: str) -> str:
        """``text`` without what is remembered, and without the password of any URI."""
        return self._mask(text)


known_secrets = KnownSecrets()
mask_known = known_secrets.mask
os.register_at_fork(after_in_child=known_secrets.renew_lock)


def _secrets_in(value: Any, *, name: str) -> Iterator[str]:
    # Iterative, and each container once: options are whatever their reader made of them.
    waiting, seen = [(name, value)], set[int]()
    while waiting:
        name, member = waiting.pop()
        if tells_secret(name):
            yield from (text for text in texts_in(member) if text.lower() not in _NO_SECRETS)
        if isinstance(member, str):
            yield from passwords_in(member)
            member = _parsed(member)
        if isinstance(member, (dict, list, tuple)) and id(member) not in seen:
            seen.add(id(member))
            inner = member.items() if isinstance(member, dict) else ((name, each) for each in member)
            waiting.extend((str(key), each) for key, each in inner)


def _parsed(text: str) -> Any:
    """The object or list that ``text`` is as JSON, else None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
