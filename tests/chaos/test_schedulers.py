"""Point 4: several schedulers and API servers on one database; one dies and comes back; exactly one run each."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier

import pytest

from app.kernel.crash_points import CrashPoint
from tests.acceptance.deployment import Client
from tests.chaos import figures
from tests.chaos.conftest import MakeFleet
from tests.chaos.consumers import BATCHES, CLAUSES, CLOCKS, CONSUMERS, Consumers, write_pipeline
from tests.chaos.fleet import Fleet
from tests.waiting import eventually

POINTS = (CrashPoint.PLAN_UNCOMMITTED, CrashPoint.PLANNED, CrashPoint.FINISH_UNCOMMITTED, CrashPoint.FINISHED)


@pytest.mark.parametrize(
    ("schedulers", "events", "rounds"),
    [
        pytest.param(2, 30, 10, id="short", marks=pytest.mark.timeout(300)),
        pytest.param(3, 300, 100, id="long", marks=[pytest.mark.chaos, pytest.mark.timeout(900)]),
    ],
)
async def test_one_run_each(make_fleet: MakeFleet, chance: Random, schedulers: int, events: int, rounds: int) -> None:
    async with make_fleet() as fleet:
        start = write_pipeline(fleet.pipelines)
        await fleet.start(dag_processor=1, scheduler=schedulers, api_server=2)
        await fleet.until_dags([*CONSUMERS, *CLOCKS])
        clients = list(fleet.clients.values())
        for client in clients:
            await eventually(lambda client=client: _answers(client), 60, what="an API server")
        async with asyncio.TaskGroup() as group:
            posting = group.create_task(_post_at_random_gaps(clients, chance, events=events))
            killing = group.create_task(_kill_and_restart(fleet, Random(chance.random()), posting))
        deaths = killing.result()
        assert deaths
        await _rounds(fleet, clients, rounds=rounds)
        consumers = Consumers(fleet)
        runs = {dag_id: await consumers.assert_each_group_once(dag_id) for dag_id in CLAUSES}
        runs |= {dag_id: await consumers.assert_each_in_one_batch(dag_id) for dag_id in BATCHES}
        await fleet.until_up()
        by_clock = await consumers.assert_clocks(start)
    assert runs["rounds"] == rounds
    told = f"{sum(runs.values())} runs of {len(CONSUMERS)} consumers, {by_clock} by the clock, none lost or doubled"
    figures.record("4 schedulers", f"{events} events, {schedulers} schedulers, {deaths} killed", told)
    figures.record("4 schedulers", f"{rounds} rounds of A and B through a barrier", f"{runs['rounds']} runs")


async def _post_at_random_gaps(clients: list[Client], chance: Random, *, events: int) -> None:
    for number in range(events):
        body = {"name": chance.choice("aaabbc"), "extra": {"value": number}}
        await asyncio.to_thread(chance.choice(clients).post, "/api/v2/assets/events", body)
        await asyncio.sleep(chance.uniform(0, 0.25))


async def _kill_and_restart(fleet: Fleet, chance: Random, posting: asyncio.Task[None]) -> int:
    """One scheduler at a time while events are posted: at a random moment, or at a point that one of them passes."""
    deaths = 0
    while not posting.done():
        if deaths % 2 == 0:
            await asyncio.sleep(chance.uniform(0.2, 1.5))
            node = chance.choice(fleet.of_kind("scheduler"))
            node.kill()
        else:
            armed = fleet.points.arm(chance.choice(POINTS), passing=chance.randint(1, 3))
            while (fired := armed.fired()) is None and not (posting.done() and armed.withdraw()):
                await asyncio.sleep(0.01)
            if fired is None:
                break
            node = next(each for each in fleet.of_kind("scheduler") if each.pid == fired.pid)
            node.reap()
        deaths += 1
        node.start()
        await fleet.until_up(node)
    return deaths


async def _rounds(fleet: Fleet, clients: list[Client], *, rounds: int) -> None:
    """A and B at the same moment to two API servers; the next round once its run has appeared."""
    barrier = Barrier(2)

    def post(client: Client, name: str) -> int:
        barrier.wait(30)
        return int(client.post("/api/v2/assets/events", {"name": name})["id"])

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:
        for number in range(1, rounds + 1):
            posts = [loop.run_in_executor(pool, post, *each) for each in zip(clients, "xy", strict=True)]
            events = sorted(await asyncio.gather(*posts))

            async def appeared(number: int = number) -> bool:
                runs: int = await fleet.value("SELECT count(*) FROM dag_run WHERE dag_id = 'rounds'")
                assert runs <= number
                return runs == number

            await eventually(appeared, 60, what=f"the run of round {number}")
            causes = await fleet.value(
                "SELECT array_agg(event_id ORDER BY event_id) FROM dag_run_event WHERE dag_run_id = "
                "(SELECT max(id) FROM dag_run WHERE dag_id = 'rounds')"
            )
            assert causes == events, f"round {number}: the run has {causes}, not {events}"


def _answers(client: Client) -> bool:
    try:
        return bool(client.get("/api/v2/version")) and bool(client.token())
    except OSError:
        return False
