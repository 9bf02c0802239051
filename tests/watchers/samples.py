"""Values and triggers that tests import by path, some of them in other processes."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from pathlib import Path, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from watchers.describe import describe_trigger
from watchers.triggers import BaseEventTrigger, BaseTrigger, TriggerEvent


class Colour(Enum):
    RED = "red"
    BLUE = ("b", 1)


class Level(IntEnum):
    LOW = 1


class Right(Flag):
    READ = 1
    WRITE = 2


class EchoTrigger(BaseEventTrigger):
    """Does not call ``super().__init__()``, as the field's users often do not."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.watchers.samples.EchoTrigger", self.kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent(self.kwargs)

    class Inner(BaseTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "tests.watchers.samples.EchoTrigger.Inner", {}

        async def run(self) -> AsyncIterator[TriggerEvent]:
            yield TriggerEvent(None)


BERLIN = ZoneInfo("Europe/Berlin")

KWARGS: dict[str, Any] = {
    "none": None,
    "true": True,
    "one": 1,
    "one_float": 1.0,
    "minus_zero": -0.0,
    "infinite": float("-inf"),
    "huge": 7**5000,
    "text": "naïve 😀\x00\n",
    "nfc": unicodedata.normalize("NFC", "é"),
    "nfd": unicodedata.normalize("NFD", "é"),
    "tuple": (1, (2, [3]), ()),
    "set": {"b", "a", 1, (2, "x"), None, frozenset({"q", "r", "s"})},
    "frozen": frozenset({b"x", b"y", Colour.RED, Level.LOW}),
    "bytes": b"\x00\xff",
    "utc": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "offset": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "berlin_first": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    "berlin_second": datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    "naive": datetime(2026, 1, 2),  # noqa: DTZ001
    "date": date(2026, 1, 2),
    "time": time(3, 4, 5),
    "zoned_time": time(3, 4, fold=1, tzinfo=BERLIN),
    "delta": timedelta(days=-1, microseconds=5),
    "enum": Colour.BLUE,
    "level": Level.LOW,
    "flag": Right.READ,
    "flags": Right.READ | Right.WRITE,
    "path": Path("/tmp/a b"),
    "windows": PureWindowsPath("c:/x"),
    "decimal": Decimal("1.10"),
    "uuid": UUID(int=5),
    "mapping": {(1, 2): {"x"}, "a": 1, 2: None, frozenset({3, 4}): "z"},
    "tagged": {"__type__": "tuple", "value": [1]},
    "nested": {"b": [{"c": (1,)}], "a": {}},
}


def print_identity() -> None:
    sys.stdout.write(describe_trigger(EchoTrigger(**KWARGS)).identity)
