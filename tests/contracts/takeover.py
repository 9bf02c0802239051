"""How long a kill of the owner costs at a broker, whatever the rest of a take-over takes: usable for every source."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from tests.contracts.harness import Break, SourceHarness
from tests.contracts.ledger import Driver, Ledger, driving


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """Seconds from the start of the next owner to the first new message stored, and from the kill to the last message
    that was in flight then."""

    new_message: float
    in_flight: float


async def measure_take_over(source: SourceHarness, *, in_flight: int = 5) -> TakeOver:
    """Cut an owner off while messages are in its hands, as a kill does (what it does at its end reaches nobody), start
    another and send a new message."""
    loop, ledger = asyncio.get_running_loop(), Ledger()
    ledger.close_gate()
    owner = Driver(source.new_trigger(), ledger)
    owner.start()
    await source.send([json.dumps(f"held {number}").encode() for number in range(in_flight)])
    await ledger.wait_for_offer(1)
    await source.break_connection(Break.MUTE)
    killed = loop.time()
    await owner.stop()
    await source.heal()
    ledger.open_gate()
    started = loop.time()
    async with driving(source.new_trigger(), ledger):
        await source.send([b'"new"'])
        await ledger.wait_until(lambda: any(source.body(event)[0] == "new" for event in ledger.events))
        new_message = loop.time() - started
        await ledger.wait_for_events(in_flight + 1)
        return TakeOver(new_message=round(new_message, 2), in_flight=round(loop.time() - killed, 2))
