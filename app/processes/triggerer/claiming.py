"""Claims one beside the other: while one is answered, the triggers of another are decrypted and started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: Claims on their way at the same time.
_LANES = 3


async def claim_in_lanes(claim: Callable[[int], Awaitable[int]], *, room: int, most: int, until: float) -> bool:
    """``claim(limit)`` until it finds fewer than its limit, ``room`` is used up or ``until`` (monotonic) has come.

    ``claim`` returns how many it took; no limit is larger than ``most``. The first one goes alone: as a rule there is
    nothing more to take. Returns whether there may be more to take, and room for it.
    """
    left = room

    async def lane() -> bool:
        """Returns whether there may be more."""
        nonlocal left
        while left > 0:
            if time.monotonic() >= until:
                return True
            limit = min(left, most)
            left -= limit
            if await claim(limit) < limit:
                return False
        return False

    if left <= 0:
        return False
    limit = min(left, most)
    left -= limit
    if await claim(limit) < limit:
        return False
    # None is cancelled because another failed: a claim that was committed should be answered.
    ended = await asyncio.gather(*(lane() for _ in range(_LANES)), return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return all(ended)
