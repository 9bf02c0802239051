"""Group commit: what arrives while one transaction is under way goes together into the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Collects items of concurrent callers and hands them to ``work`` together, at most ``limit`` at a time.

    ``work`` answers each item, in order. If it raises, every caller of that batch gets the exception.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, limit: int = 500) -> None:
        self._work = work
        self._limit = limit
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], *, limit: int = 500
    ) -> AsyncIterator[Batcher[Item, Answer]]:
        """A batcher whose task lives as long as the block; what was submitted is worked off before it ends."""
        batcher = cls(work, limit=limit)
        working = asyncio.create_task(batcher._work_for_ever(), name=f"batcher:{getattr(work, '__name__', 'work')}")
        try:
            yield batcher
            await batcher._idle.wait()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            batcher._abandon()

    async def submit(self, item: Item) -> Answer:
        """Wait for the batch that carries ``item`` and return the answer to it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._idle.clear()
        self._wake.set()
        return await future

    async def _work_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
            if not batch:
                self._wake.clear()
                self._idle.set()
                continue
            await self._work_off(batch)

    async def _work_off(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._work([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - handed to every caller
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def _abandon(self) -> None:
        for _, future in self._waiting:
            future.cancel()
        self._waiting = []
