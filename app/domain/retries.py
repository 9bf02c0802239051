"""Whether and when a failed attempt is tried again."""

from __future__ import annotations

import hashlib
import math

#: Longest pause between two tries in seconds, whatever the back-off says (as in the field).
MAX_RETRY_DELAY = 24 * 60 * 60.0


def may_retry(*, try_number: int, max_tries: int) -> bool:
    """Whether another try is left after try ``try_number`` (from 1). ``max_tries`` does not count the first try."""
    return try_number <= max_tries


def retry_delay(
    delay: float, *, try_number: int, exponential: bool = False, max_delay: float | None = None, identity: str = ""
) -> float:
    """Seconds to wait after failed try ``try_number`` (from 1).

    With ``exponential`` the pause doubles with each try and gets up to as much again as jitter, which depends on
    ``identity`` and the try only: every scheduler computes the same moment. ``max_delay`` caps the result.
    """
    if exponential:
        delay = _backed_off(delay, try_number=try_number, identity=identity)
        if max_delay is not None:
            delay = min(delay, max_delay)
    return delay


def _backed_off(delay: float, *, try_number: int, identity: str) -> float:
    # 2 ** 40 seconds is far beyond the cap; without this bound a high try number overflows a float.
    base = max(1, math.ceil(min(delay * 2.0 ** min(try_number - 1, 40), MAX_RETRY_DELAY)))
    digest = hashlib.sha256(f"{identity}#{try_number}".encode()).digest()
    return min(float(base + int.from_bytes(digest[:8], "big") % base), MAX_RETRY_DELAY)
