"""Log lines and printed text of triggers, on their way to the log of the trigger that wrote them."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping

import msgspec

from app.kernel.frames import FrameStream, PeerGone
from app.processes.triggerer.messages import LogLine
from app.processes.triggerer.runner_child_attribution import CURRENT
from watchers.known_secrets import mask_known

#: Frames that may wait to be sent; further log lines are dropped and counted.
WAITING_LIMIT = 2000
#: Log lines of one trigger within a second; further ones are dropped and counted. The triggerer serves all triggers.
LINES_A_SECOND = 500
LONGEST_LINE = 20_000

Masker = Callable[[str], str]


class Outbox:
    """Sends frames that nobody waits for. :meth:`put` may be called from any thread and never blocks."""

    def __init__(self, stream: FrameStream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop
        self._waiting: deque[msgspec.Struct] = deque()
        self._wake = asyncio.Event()
        self._dropped = 0
        self._second = 0.0
        self._lines: Counter[int] = Counter()

    def put(self, frame: msgspec.Struct) -> None:
        """Queue a frame; a log line is dropped if too many wait, or its trigger had too many within this second."""
        if isinstance(frame, LogLine) and (len(self._waiting) >= WAITING_LIMIT or self._is_flood(frame.trigger_id)):
            self._dropped += 1
            return
        self._waiting.append(frame)
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:
            return  # The loop is closed: the process is ending.

    def _is_flood(self, trigger_id: int) -> bool:
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second = now
            self._lines.clear()
        self._lines[trigger_id] += 1
        return self._lines[trigger_id] > LINES_A_SECOND

    async def send_for_ever(self) -> None:
        """Send what is queued, in order, until the parent is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send everything queued now."""
        while self._waiting:
            try:
                await self._stream.send(self._waiting.popleft())
            except PeerGone:
                return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self.put(
                LogLine(
                    trigger_id=0,
                    level="warning",
                    logger="tidegate.runner",
                    event=f"{dropped} log lines were dropped: they come faster than they can be written",
                    timestamp=time.time(),
                )
            )


class ForwardingHandler(logging.Handler):
    """Log records of the whole process, each to the trigger in whose context it was made, masked."""

    def __init__(self, outbox: Outbox, maskers: dict[int, Masker]) -> None:
        super().__init__()
        self._outbox = outbox
        self._maskers = maskers

    def emit(self, record: logging.LogRecord) -> None:
        trigger_id = getattr(record, "trigger_id", None) or CURRENT.get()
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[0] is not None:
                text += "\n" + "".join(traceback.format_exception(*record.exc_info))
        except Exception as error:  # noqa: BLE001 — an author's arguments do not fit the message
            text = f"{record.msg!r} (could not be formatted: {type(error).__name__})"
        self._outbox.put(
            LogLine(
                trigger_id=trigger_id,
                level=record.levelname.lower(),
                logger=record.name,
                event=one_line(masked(text, self._maskers, trigger_id)),
                timestamp=record.created,
            )
        )


class Printed(io.TextIOBase):
    """Stands for ``sys.stdout`` and ``sys.stderr``: each line to the trigger that printed it."""

    def __init__(self, outbox: Outbox, maskers: dict[int, Masker], *, name: str) -> None:
        self._outbox = outbox
        self._maskers = maskers
        self._name = name
        self._partial: dict[int, str] = {}

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        trigger_id = CURRENT.get()
        *lines, rest = (self._partial.pop(trigger_id, "") + text).split("\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        if rest:
            self._partial[trigger_id] = rest
        for line in lines:
            event = one_line(masked(line, self._maskers, trigger_id))
            self._outbox.put(
                LogLine(trigger_id=trigger_id, level="info", logger=self._name, event=event, timestamp=time.time())
            )
        return len(text)


def masked(text: str, maskers: Mapping[int, Masker], trigger_id: int) -> str:
    """``text`` without the secrets of its trigger; where it is nobody's (0), without those of any trigger.

    Never with secrets of connections and variables that code of this process looked up.
    """
    text = mask_known(text)
    if trigger_id in maskers:
        return maskers[trigger_id](text)
    for mask in list(maskers.values()):
        text = mask(text)
    return text


def one_line(text: str) -> str:
    """Bounded text without lone surrogates, fit for a frame."""
    return text[:LONGEST_LINE].encode("utf-8", "backslashreplace").decode()


def install(outbox: Outbox, maskers: dict[int, Masker]) -> None:
    """Send logging and printing of this process through ``outbox``."""
    root = logging.getLogger()
    root.handlers[:] = [ForwardingHandler(outbox, maskers)]
    root.setLevel(logging.INFO)
    for noisy in ("asyncio", "aiokafka", "botocore", "aiobotocore", "boto3", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    sys.stdout = Printed(outbox, maskers, name="stdout")
    sys.stderr = Printed(outbox, maskers, name="stderr")
