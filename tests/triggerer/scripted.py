"""Triggers that do what tests need, well and badly."""

from __future__ import annotations

# mypy: disable-error-code="unreachable,misc,unused-ignore"
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from watchers.connections import get_connection
from watchers.triggers import BaseEventTrigger, PositionUpdate, TriggerEvent, Yielded

MODULE = __name__


class _Plain(BaseEventTrigger):
    """Serialises whatever it was given; like many authors, without ``super().__init__()``."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{MODULE}.{type(self).__name__}", self.kwargs

    async def run(self) -> AsyncIterator[Yielded]:
        raise NotImplementedError
        yield


class Ticker(_Plain):
    """An event each ``pause`` seconds, with the moment it was made."""

    async def run(self) -> AsyncIterator[Yielded]:
        number = 0
        while True:
            number += 1
            yield TriggerEvent({"n": number, "at": time.time(), "pid": os.getpid()})
            await asyncio.sleep(self.kwargs["pause"])


class Poison(_Plain):
    """Everything a payload may not be, then a good value."""

    async def run(self) -> AsyncIterator[Yielded]:
        cycle: list[Any] = []
        cycle.append(cycle)
        deep: Any = 1
        for _ in range(200):
            deep = [deep]
        bad = [float("nan"), cycle, deep, "\ud800", "x" * (64 * 1024 * 1024), object(), {1: 2}, 2**70]
        yield TriggerEvent(b"\x00\xff", key="bytes")
        yield TriggerEvent({3, 1, 2}, key="set")
        for number, value in enumerate(bad):
            yield TriggerEvent(value, key=f"bad {number}")
        yield TriggerEvent("good", key="good")
        await asyncio.sleep(3600)


class BadConstructor(_Plain):
    """Fails while ``path`` exists; ``how`` says with what."""

    def __init__(self, path: str, how: str) -> None:
        if Path(path).exists():
            raise {"value": ValueError, "exit": SystemExit, "interrupt": KeyboardInterrupt}[how]("not today")
        super().__init__(path=path, how=how)

    async def run(self) -> AsyncIterator[Yielded]:
        yield TriggerEvent("built")
        await asyncio.sleep(3600)


class PrintsBinary(_Plain):
    """Writes what is no text, and what looks like frames, to descriptors 1 and 2, and prints."""

    async def run(self) -> AsyncIterator[Yielded]:
        for _ in range(5):
            os.write(1, b"\x00\x00\x00\x05\xff\xfe raw output\n" * 100)
            os.write(2, b"\x80" * 1000 + b"\n")
            print("printed text", flush=True)
            sys.stderr.write("printed error\n")
            await asyncio.sleep(0)
        self.log.info("logged with %s", self.kwargs["secret"])
        yield TriggerEvent("printed")
        await asyncio.sleep(3600)


class Dies(_Plain):
    """Takes the whole runner with it while ``path`` exists."""

    async def run(self) -> AsyncIterator[Yielded]:
        if Path(self.kwargs["path"]).exists():
            if self.kwargs["how"] == "exit":
                os._exit(3)
            os.kill(os.getpid(), signal.SIGSEGV)
        yield TriggerEvent("alive")
        await asyncio.sleep(3600)


class Blocks(_Plain):
    """Holds the loop for a minute, while ``path`` exists."""

    async def run(self) -> AsyncIterator[Yielded]:
        await asyncio.sleep(self.kwargs.get("after", 0))
        if Path(self.kwargs["path"]).exists():
            time.sleep(60)  # noqa: ASYNC251 — that is the point
        yield TriggerEvent("free")
        await asyncio.sleep(3600)


class Broker(_Plain):
    """A queue in a folder: each file is a message; it is deleted (acknowledged) only after the yield."""

    async def run(self) -> AsyncIterator[Yielded]:
        folder = Path(self.kwargs["folder"])
        while True:
            found = sorted(folder.glob("*.msg"))
            if found:
                yield [TriggerEvent(path.stem, key=path.stem, source="folder") for path in found]
                for path in found:
                    path.unlink()
            await asyncio.sleep(0.01)

    async def cleanup(self) -> None:
        with Path(self.kwargs["folder"], "cleaned").open("a") as file:
            file.write("x")


class Returns(_Plain):
    """Five events with no await between, then the end."""

    async def run(self) -> AsyncIterator[Yielded]:
        for number in range(5):
            yield TriggerEvent(number, key=str(number))


class YieldsNonsense(_Plain):
    """What it yields is no event."""

    async def run(self) -> AsyncIterator[Yielded]:
        yield {"not": "an event"}  # type: ignore[misc]


class NoGenerator(_Plain):
    """``run`` that never yields."""

    async def run(self) -> AsyncIterator[Yielded]:  # type: ignore[override]
        return None  # type: ignore[return-value]


class LooksUp(_Plain):
    """Tells the password of a connection in every way, then fails with it."""

    async def run(self) -> AsyncIterator[Yielded]:
        password = get_connection(self.kwargs["conn_id"]).password
        self.log.info("logged %s", password)
        print("printed", password)
        self.status.failed(OSError(f"refused {password}"))
        await asyncio.sleep(0)
        raise ConnectionError(f"cannot log in with {password}")
        yield


class Raises(_Plain):
    """Fails with its own secret in the message."""

    async def run(self) -> AsyncIterator[Yielded]:
        await asyncio.sleep(0)
        raise ConnectionError(f"cannot reach broker with password {self.kwargs['secret']}")
        yield


class ExitsInTask(_Plain):
    """A task of its own tries to end the process."""

    async def run(self) -> AsyncIterator[Yielded]:
        async def leave() -> None:
            sys.exit(7)

        try:
            await asyncio.create_task(leave())
        except RuntimeError as error:
            yield TriggerEvent(str(error), key="exit")
        await asyncio.sleep(3600)


class Large(_Plain):
    """One yield of many large payloads: several frames, one commit."""

    async def run(self) -> AsyncIterator[Yielded]:
        yield [TriggerEvent("y" * 900_000, key=str(number)) for number in range(self.kwargs["count"])]
        await asyncio.sleep(3600)


class Positioned(_Plain):
    """Says where it was told to resume, then goes one further."""

    async def run(self) -> AsyncIterator[Yielded]:
        at = self.positions.get("src", {}).get("lane", 0)
        yield [TriggerEvent(at), PositionUpdate(source="src", lanes={"lane": at + 1})]
        if at < self.kwargs["until"]:
            return
        await asyncio.sleep(3600)


class SourceTrouble(_Plain):
    """Its source fails for a while."""

    async def run(self) -> AsyncIterator[Yielded]:
        for _ in range(5):
            self.status.failed(OSError(f"connection refused for {self.kwargs['secret']}"))
        while not Path(self.kwargs["path"]).exists():
            await asyncio.sleep(0.01)
        self.status.recovered()
        await asyncio.sleep(3600)
        yield


class Shouts(_Plain):
    """Says repr and type of each argument."""

    async def run(self) -> AsyncIterator[Yielded]:
        yield TriggerEvent({name: [repr(value), type(value).__name__] for name, value in self.kwargs.items()})
        await asyncio.sleep(3600)


class Fast(_Plain):
    """As many events as fast as possible, ``size`` a yield; says how long each yield took."""

    async def run(self) -> AsyncIterator[Yielded]:
        number, size = 0, self.kwargs["size"]
        payload = "an ordinary message of a queue, of about a hundred characters, as is usual in such measurements"
        took = 0.0
        while True:
            started = time.perf_counter()
            yield [
                TriggerEvent({"n": number + n, "text": payload, "took": took}, key=f"{self.trigger_id}/{number + n}")
                for n in range(size)
            ]
            took = time.perf_counter() - started
            number += size
            if pause := self.kwargs.get("pause"):
                await asyncio.sleep(pause)


class Floods(_Plain):
    """Yields a list of ``count`` events at once, then, ``ticks`` times, one after the other without waiting."""

    async def run(self) -> AsyncIterator[Yielded]:
        count = self.kwargs.get("count", 0)
        if count:
            pad = "x" * self.kwargs.get("bytes", 0)
            events: list[Any] = [TriggerEvent({"n": n, "pad": pad}, key=str(n)) for n in range(count)]
            yield [*events, PositionUpdate(source="flood", lanes={"0": count})]
        for n in range(self.kwargs.get("ticks", 0)):
            yield TriggerEvent({"n": count + n}, key=str(count + n))
        while self.kwargs.get("empty"):
            yield []
        await asyncio.sleep(3600)


class Paced(_Plain):
    """One that asks for ten events a second, and has two hundred."""

    events_per_second = 10

    async def run(self) -> AsyncIterator[Yielded]:
        for n in range(self.kwargs["count"]):
            yield TriggerEvent({"n": n}, key=str(n))
        await asyncio.sleep(3600)


class Mixed(_Plain):
    """A list with something in it that is no event."""

    async def run(self) -> AsyncIterator[Yielded]:
        yield [*(TriggerEvent(n) for n in range(5000)), "no event"]  # type: ignore[list-item]
