"""Ways for the owner of a watcher to die, and how long its messages then take."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from random import Random

from app.kernel.crash_points import CrashPoint
from tests.chaos.fleet import Fleet
from tests.chaos.flow import Flow
from tests.chaos.ledger import Ledger
from tests.chaos.nodes import Node
from tests.waiting import eventually

#: What a triggerer passes on the way of a message, of a claim and of a release.
MESSAGE_POINTS = (
    CrashPoint.YIELDED,
    CrashPoint.RECEIVED,
    CrashPoint.STORE_UNCOMMITTED,
    CrashPoint.STORED,
    CrashPoint.RESOLVED,
)
CLAIM_POINTS = (CrashPoint.CLAIM_UNCOMMITTED, CrashPoint.CLAIMED)
RELEASE_POINTS = (CrashPoint.RELEASE_UNCOMMITTED, CrashPoint.RELEASED)
POINTS = (*MESSAGE_POINTS, *CLAIM_POINTS, *RELEASE_POINTS)
#: Longest for a point to be passed, in seconds.
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Who died, when and where. ``also`` died on the way there."""

    node: Node
    at: float
    place: str
    also: tuple[Node, ...] = ()


@dataclass(slots=True, kw_only=True)
class Times:
    """Seconds from deaths: to a new owner, to the next new message stored, and to those in flight."""

    owned: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)


class Killer:
    """Kills the owner of one watcher after the other and measures."""

    def __init__(self, fleet: Fleet, chance: Random) -> None:
        self._fleet = fleet
        self._chance = chance
        self._deaths: list[tuple[Times, float, list[tuple[str, str]]]] = []

    async def kill(self, flow: Flow, point: CrashPoint | None) -> Death:
        """Kill the owner of the flow's watcher at ``point``, or at a random moment."""
        await self._until_enough(3 if point in CLAIM_POINTS else 2)
        owner = await self._fleet.owner(flow.source.kind)
        if point is None:
            await asyncio.sleep(self._chance.uniform(0, 0.4))
            return Death(node=owner, at=owner.kill(), place="anywhere")
        if point in CLAIM_POINTS:
            armed = self._fleet.points.arm(point)
            owner.kill()
            fired = await armed.wait(within=_PATIENCE)
            claimer = self._reaped(fired.pid)
            return Death(node=claimer, at=fired.at, place=point.value, also=(owner,))
        passing = self._chance.randint(1, 3) if point in MESSAGE_POINTS else 1
        armed = self._fleet.points.arm(point, victim=owner.pid, passing=passing)
        if point in RELEASE_POINTS:
            owner.send(signal.SIGTERM)
        fired = await armed.wait(within=_PATIENCE)
        return Death(node=self._reaped(fired.pid), at=fired.at, place=point.value)

    def _reaped(self, pid: int) -> Node:
        node = next(node for node in self._fleet.nodes.values() if node.pid == pid)
        node.reap()
        return node

    async def measure(self, flow: Flow, death: Death, times: Times) -> None:
        """Send a message at once and go on until one that was sent since then is stored.

        The very first may be given to a request of the dead, which SQS does not know to be gone.
        """
        kind, ledger = flow.source.kind, flow.ledger
        self._fleet.note(f"{kind}: {death.node.name} died at {death.place}")
        in_flight = ledger.waiting(kind, before=death.at)
        self._deaths.append((times, death.at, [(kind, value) for value in in_flight]))
        flow.resume()
        await flow.send_one()
        new = await ledger.first_stored(kind, sent_after=death.at, within=90) - death.at
        times.new.append(new)
        owned = await self._owned_again(kind) - death.at
        times.owned.append(owned)
        self._fleet.note(
            f"{kind}: owned again after {owned:.2f} s, a new message after {new:.2f} s; in flight: {len(in_flight)}"
        )

    async def _owned_again(self, watcher: str) -> float:
        """When the watcher's trigger was last claimed, by ``time.monotonic()``."""
        ago = await self._fleet.value(
            """
            SELECT extract(epoch FROM clock_timestamp() - max(s.at))::float8
            FROM state_change s JOIN asset_watcher w ON w.trigger_id = s.subject_id
            WHERE s.subject = 'trigger' AND s.to_state = 'running' AND s.from_state = 'unassigned' AND w.name = $1
            """,
            watcher,
        )
        return time.monotonic() - float(ago)

    def count_in_flight(self, ledger: Ledger) -> None:
        """Once everything is stored: how long that took for what was in flight at each death."""
        for times, at, keys in self._deaths:
            times.in_flight += [ledger.stored[key] - at for key in keys]

    async def revive(self, death: Death) -> None:
        """Start again who died."""
        for node in (death.node, *death.also):
            if not node.is_running:
                node.start()

    async def _until_enough(self, count: int) -> None:
        async def enough() -> bool:
            registered = await self._fleet.fetch(
                "SELECT pid FROM job WHERE ended_at IS NULL AND job_type = 'triggerer'"
            )
            running = {node.pid for node in self._fleet.of_kind("triggerer") if node.is_running}
            return len(running & {row["pid"] for row in registered}) >= count

        await eventually(enough, 90, what=f"{count} triggerers at work")


def plan_kills(chance: Random, kinds: tuple[str, ...], *, count: int) -> list[tuple[str, CrashPoint | None]]:
    """``count`` kills a kind, in random order: about half at random moments, the others at each point in turn."""
    kills: list[tuple[str, CrashPoint | None]] = []
    for number, kind in enumerate(kinds):
        at_points = count // 2 if count > len(POINTS) else count - 1
        offset = number * at_points
        kills += [(kind, POINTS[(offset + n) % len(POINTS)]) for n in range(at_points)]
        kills += [(kind, None)] * (count - at_points)
    chance.shuffle(kills)
    return kills


async def until_acknowledged(flow: Flow, *, within: float = 60.0) -> None:
    """Until the source would give nothing again."""

    async def done() -> bool:
        left = await flow.source.unacknowledged(flow.sent)
        assert left == 0, f"{left} messages of {flow.source.kind} are not acknowledged"
        return True

    await eventually(done, within, what=f"everything of {flow.source.kind} acknowledged")
