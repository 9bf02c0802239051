"""The client's own log lines, tamed.

The client writes a line for every failed attempt, ten a second for each trigger while a broker is away, and does not
know which trigger it works for. What matters of it the trigger reports itself; the client's lines are passed on at most
once a minute for each place in its code.
"""

from __future__ import annotations

import logging
import time
from typing import Final

VENDOR_LOGGER = "aiokafka"
FORWARDED_AS = "tidegate.provider.kafka"
PERIOD_SECONDS: Final = 60.0


class Forwarder(logging.Handler):
    """Passes the client's lines on, at most one a period for each place that logs; says how many it held back."""

    def __init__(self, *, period: float = PERIOD_SECONDS) -> None:
        super().__init__(logging.WARNING)
        self._period = period
        self._target = logging.getLogger(FORWARDED_AS)
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        place = (record.pathname, record.lineno)
        now = time.monotonic()
        until, held = self._seen.get(place, (0.0, 0))
        if now < until:
            self._seen[place] = (until, held + 1)
            return
        self._seen[place] = (now + self._period, 0)
        more = f" ({held} more like this before)" if held else ""
        # The trigger counts and reports failures itself; to an operator these lines are detail.
        level = logging.INFO if record.exc_info is None else record.levelno
        self._target.log(level, "client: %s%s", record.getMessage(), more, exc_info=record.exc_info)


def tame_vendor_logs() -> None:
    """Install the :class:`Forwarder` once in this process."""
    logger = logging.getLogger(VENDOR_LOGGER)
    if not any(isinstance(handler, Forwarder) for handler in logger.handlers):
        logger.addHandler(Forwarder())
        logger.propagate = False
