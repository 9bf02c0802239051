"""Log lines of the service: structured, on standard error, as text for people or JSON for machines.

A line is ``logger.info("what happened, as a sentence", action="trigger_restarted", trigger_id=7, …)``: ``action`` is a
stable name to search for, ids are separate fields. Lines of libraries (standard logging) come out in the same shape.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import IO, Any

import structlog

from app.kernel.settings import LogFormat, LogLevel

# Libraries that tell every request or rebalance at INFO.
_QUIET = (
    "aiokafka",
    "aiobotocore",
    "boto3",
    "botocore",
    "urllib3",
    "alembic",
    "asyncio",
    "watchfiles",
    "uvicorn.access",
)


def configure_logging(
    *, level: LogLevel = LogLevel.INFO, style: LogFormat = LogFormat.CONSOLE, stream: IO[str] | None = None
) -> None:
    """Send everything to ``stream`` (standard error by default). Called once by each process, before its first line."""
    output = stream or sys.stderr
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _component_of_library],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(style, output)],
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.value.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _component_of_library(_logger: Any, _method: str, event: Any) -> Any:
    record = event.get("_record")
    if record is not None:
        event.setdefault("component", record.name)
    return event


def _renderers(style: LogFormat, output: IO[str]) -> list[Any]:
    if style is LogFormat.JSON:
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ]
    return [
        structlog.dev.ConsoleRenderer(
            colors=output.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
    ]


def get_logger(component: str, **ids: object) -> structlog.stdlib.BoundLogger:
    """The logger of a part of the service; ``ids`` are on each of its lines. Modules ask for it before the set-up."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(
        f"tidegate.{component}", component=component, **ids
    )
    return logger


class LimitedLog:
    """Tells a repeated trouble without a flood, per key.

    The first failure is told at once; then at most one line each ``every`` seconds, with how many were not told; and
    :meth:`recovered` tells the end once, with how long it lasted. At most ``keys`` troubles are remembered; of more,
    the oldest is forgotten.
    """

    def __init__(
        self,
        logger: structlog.stdlib.BoundLogger,
        *,
        every: float = 30.0,
        keys: int = 1000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._every = every
        self._keys = keys
        self._monotonic = monotonic
        self._troubles: dict[str, _Trouble] = {}

    def failed(self, key: str, message: str, *, level: int = logging.WARNING, **fields: object) -> bool:
        """One more failure of ``key``; true if a line was written."""
        now = self._monotonic()
        trouble = self._troubles.get(key)
        if trouble is None:
            if len(self._troubles) >= self._keys:
                del self._troubles[next(iter(self._troubles))]
            trouble = self._troubles[key] = _Trouble(now)
        trouble.failures += 1
        if trouble.told_at is not None and now - trouble.told_at < self._every:
            trouble.untold += 1
            return False
        if trouble.untold:
            fields["not_told"] = trouble.untold
        trouble.told_at, trouble.untold = now, 0
        self._logger.log(level, message, **fields)
        return True

    def recovered(self, key: str, message: str, **fields: object) -> bool:
        """``key`` works again; true if it had failed, in which case a line was written."""
        trouble = self._troubles.pop(key, None)
        if trouble is None:
            return False
        lasted = round(self._monotonic() - trouble.since, 1)
        self._logger.info(message, failures=trouble.failures, lasted_seconds=lasted, **fields)
        return True


class _Trouble:
    __slots__ = ("failures", "since", "told_at", "untold")

    def __init__(self, since: float) -> None:
        self.since = since
        self.told_at: float | None = None
        self.failures = 0
        self.untold = 0
