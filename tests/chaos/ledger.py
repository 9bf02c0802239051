"""What was sent, when each message was seen stored, and whether the database holds what the promises say."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from tests.chaos.fleet import Fleet
from tests.waiting import eventually

#: Between two looks at the events, in seconds: how exact the times are.
LOOK = 0.01
_WINDOW = 300
_EVENTS = """
SELECT e.id, a.name, coalesce(b.extra->'payload'->>'value', b.extra->'payload'->>'name', b.extra->>'value') AS value
FROM asset_event e JOIN asset a ON a.id = e.asset_id JOIN event_body b ON b.id = e.body_id
WHERE e.id > $1 ORDER BY e.id
"""


class Ledger:
    """Sent and stored, by asset and value. Times are of ``time.monotonic()``."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.sent: dict[tuple[str, str], float] = {}
        self.stored: dict[tuple[str, str], float] = {}
        self._last = 0
        self._changed = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def open(cls, fleet: Fleet) -> AsyncIterator[Ledger]:
        """A ledger that looks at the events as long as the block runs."""
        ledger = cls(fleet)
        looking = asyncio.create_task(ledger._look_for_ever(), name="ledger")
        try:
            yield ledger
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    def note_sent(self, asset: str, value: str) -> None:
        """Before it is given to the source."""
        self.sent[asset, value] = time.monotonic()

    def waiting(self, asset: str, *, before: float | None = None) -> list[str]:
        """Values sent (before a moment) and not seen stored (at that moment)."""
        until = time.monotonic() if before is None else before
        return [
            value
            for (name, value), sent in self.sent.items()
            if name == asset and sent <= until and self.stored.get((name, value), float("inf")) > until
        ]

    async def until_stored(self, asset: str, value: str, *, within: float = 60.0) -> float:
        """When the message was seen stored."""
        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(lambda: (asset, value) in self.stored)
        except TimeoutError:
            raise AssertionError(f"{asset}: {value!r} is not stored within {within} s") from None
        return self.stored[asset, value]

    async def first_stored(self, asset: str, *, sent_after: float, within: float = 60.0) -> float:
        """When the first message sent since then was seen stored, whichever it is."""

        def stored() -> list[float]:
            new = [key for key, sent in self.sent.items() if key[0] == asset and sent >= sent_after]
            return [self.stored[key] for key in new if key in self.stored]

        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(stored)
        except TimeoutError:
            raise AssertionError(f"{asset}: nothing new is stored within {within} s") from None
        return min(stored())

    async def until_all_stored(self, *, within: float = 90.0) -> None:
        """Until everything that was sent is stored: nothing is lost."""

        async def all_there() -> bool:
            missing = self.sent.keys() - self.stored.keys()
            assert not missing, f"{len(missing)} of {len(self.sent)} not stored: {sorted(missing)[:10]}"
            return True

        await eventually(all_there, within, what="every message stored")

    async def _look_for_ever(self) -> None:
        while True:
            try:
                rows = await self.fleet.fetch(_EVENTS, max(self._last - _WINDOW, 0))
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                await asyncio.sleep(0.05)
                continue
            now = time.monotonic()
            for row in rows:
                self.stored.setdefault((row["name"], row["value"]), now)
                self._last = max(self._last, row["id"])
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(LOOK)

    # ------------------------------------------------------------------------------------------------ the truth

    async def assert_each_event_once(self, asset: str) -> None:
        """Each message that was sent is one event, and there is no other; each identity as well."""
        rows = await self.fleet.fetch(_EVENTS, 0)
        found = Counter(row["value"] for row in rows if row["name"] == asset)
        assert found == Counter(value for name, value in self.sent if name == asset)
        doubles = await self.fleet.fetch(
            "SELECT source, key, count(*) FROM asset_event e JOIN asset a ON a.id = e.asset_id "
            "WHERE a.name = $1 AND key IS NOT NULL GROUP BY source, key HAVING count(*) > 1",
            asset,
        )
        assert not doubles, f"identities with more than one event: {doubles}"

    async def assert_each_run_once(self, asset: str, *dag_ids: str, within: float = 60.0) -> None:
        """Each event of the asset is the one cause of one successful run of each of these consumers."""
        for dag_id in dag_ids:

            async def consumed(dag_id: str = dag_id) -> bool:
                left = await self.fleet.value(
                    "SELECT count(*) FROM asset_event e JOIN asset a ON a.id = e.asset_id WHERE a.name = $1 AND "
                    "NOT EXISTS (SELECT FROM dag_run_event c JOIN dag_run r ON r.id = c.dag_run_id "
                    "WHERE c.event_id = e.id AND c.dag_id = $2 AND r.state = 'success')",
                    asset,
                    dag_id,
                )
                assert left == 0, f"{left} events of {asset} have no successful run of {dag_id}"
                return True

            await eventually(consumed, within, what=f"a run of {dag_id} for each event of {asset}")
            events = await self.fleet.value(
                "SELECT count(*) FROM asset_event e JOIN asset a ON a.id = e.asset_id WHERE a.name = $1", asset
            )
            runs = await self.fleet.value("SELECT count(*) FROM dag_run WHERE dag_id = $1", dag_id)
            causes = await self.fleet.value("SELECT count(*) FROM dag_run_event WHERE dag_id = $1", dag_id)
            assert (runs, causes) == (events, events), f"{dag_id}: {runs} runs, {causes} causes of {events} events"
