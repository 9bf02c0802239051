"""Ten consumers of three assets, one for each form of a schedule, and DAGs by the clock; what runs they must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from tests.chaos.fleet import Fleet
from tests.waiting import eventually

PIPELINE = """
from datetime import datetime, timedelta

from app.sdk import DAG, Asset, AssetAll, AssetAny, AssetSchedule, Batch, task

a, b, c, x, y = (Asset(name, uri=f"s3://chaos/{{name}}") for name in "abcxy")
FORMS = {{
    "single": a,
    "by_uri": Asset(uri="s3://chaos/b", name="b"),
    "any": a | b,
    "all": a & b,
    "list": [a, b, c],
    "mixed": (a & b) | c,
    "nested": AssetAll(a, AssetAny(b, c)),
    "by_count": AssetSchedule(a, batch=Batch(max_events=7)),
    "by_time": AssetSchedule(b, batch=Batch(max_wait=timedelta(seconds=1))),
    "by_both": AssetSchedule(a | c, batch=Batch(max_events=5, max_wait=timedelta(seconds=2))),
    "rounds": x & y,
}}
for name, schedule in FORMS.items():
    with DAG(name, schedule=schedule, max_active_runs=16):
        if name == "single":

            # An attempt that dies with its scheduler has failed.
            @task(retries=20, retry_delay=timedelta(seconds=0.1))
            def work():
                pass

            work()

for name, schedule in {{"once": "@once", "cron": "* * * * *"}}.items():
    with DAG(name, schedule=schedule):
        pass

with DAG("delta", schedule=timedelta(seconds=1), start_date=datetime.fromisoformat({start!r}), catchup=True):
    pass
"""

#: The clauses of each consumer, in the order in which they win.
CLAUSES: dict[str, tuple[str, ...]] = {
    "single": ("a",),
    "by_uri": ("b",),
    "any": ("a", "b"),
    "all": ("ab",),
    "list": ("abc",),
    "mixed": ("c", "ab"),
    "nested": ("ab", "ac"),
    "rounds": ("xy",),
}
#: Those that gather: what they consume, and the most events of a run.
BATCHES = {"by_count": ("a", 7), "by_time": ("b", None), "by_both": ("ac", 5)}
CONSUMERS = (*CLAUSES, *BATCHES)
CLOCKS = ("once", "cron", "delta")


def write_pipeline(folder: Path) -> datetime:
    """Returns when the DAG by the clock begins."""
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    (folder / "consumers.py").write_text(PIPELINE.format(start=start.isoformat()))
    return start


def expected_groups(clauses: Sequence[str], arrivals: Sequence[tuple[int, str]]) -> tuple[list[list[int]], list[int]]:
    """Groups of event ids by the rules, and what stays pending: thought out again, not the product's own."""
    pending: list[tuple[int, str]] = []
    groups = []
    for arrival in arrivals:
        pending.append(arrival)
        names = {name for _, name in pending}
        complete = [clause for clause in clauses if set(clause) <= names and arrival[1] in clause]
        if complete:
            clause = min(complete, key=len)
            groups.append([event for event, name in pending if name in clause])
            pending = [each for each in pending if each[1] not in clause]
    return groups, [event for event, _ in pending]


class Consumers:
    """What the database says of them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def arrivals(self, dag_id: str) -> list[tuple[int, str]]:
        """Event and asset, in the DAG's order."""
        rows = await self._fleet.fetch(
            "SELECT d.event_id, a.name FROM demand d JOIN asset a ON a.id = d.asset_id "
            "WHERE d.dag_id = $1 ORDER BY d.arrival",
            dag_id,
        )
        return [(row[0], row[1]) for row in rows]

    async def runs(self, dag_id: str) -> list[list[int]]:
        """The causes of each successful run, sorted."""
        rows = await self._fleet.fetch(
            "SELECT array_agg(c.event_id ORDER BY c.event_id) FROM dag_run r JOIN dag_run_event c ON c.dag_run_id = "
            "r.id WHERE r.dag_id = $1 AND r.state = 'success' GROUP BY r.id",
            dag_id,
        )
        return sorted(list(row[0]) for row in rows)

    async def assert_each_group_once(self, dag_id: str, *, within: float = 90.0) -> int:
        """Each completed group is the causes of exactly one run, each event is in one group; how many runs."""
        groups, _ = expected_groups(CLAUSES[dag_id], await self.arrivals(dag_id))
        wanted = sorted(sorted(group) for group in groups)

        async def there() -> bool:
            runs = await self.runs(dag_id)
            assert len(runs) >= len(wanted), f"{dag_id}: {len(runs)} of {len(wanted)} runs"
            return True

        await eventually(there, within, what=f"all runs of {dag_id}")
        assert await self.runs(dag_id) == wanted, dag_id
        assert await self._fleet.value("SELECT count(*) FROM dag_run WHERE dag_id = $1", dag_id) == len(wanted)
        return len(wanted)

    async def assert_each_in_one_batch(self, dag_id: str, *, within: float = 90.0) -> int:
        """Each event is in exactly one run, none holds more than the limit; how many runs."""
        _, most = BATCHES[dag_id]
        events = [event for event, _ in await self.arrivals(dag_id)]
        only_full = dag_id == "by_count"  # its last batch stays open
        expected = events[: len(events) // 7 * 7] if only_full else events

        async def there() -> bool:
            consumed = [event for run in await self.runs(dag_id) for event in run]
            assert len(consumed) >= len(expected), f"{dag_id}: {len(consumed)} of {len(expected)} events consumed"
            return True

        await eventually(there, within, what=f"all batches of {dag_id}")
        runs = await self.runs(dag_id)
        assert Counter(event for run in runs for event in run) == Counter(expected), dag_id
        assert most is None or all(len(run) <= most for run in runs), dag_id
        assert not only_full or all(len(run) == most for run in runs), dag_id
        return len(runs)

    async def assert_clocks(self, start: datetime) -> int:
        """One run for each moment, none left out, none twice; how many."""
        rows = await self._fleet.fetch("SELECT dag_id, logical_date FROM dag_run WHERE dag_id = ANY($1)", list(CLOCKS))
        moments = {name: sorted(row["logical_date"] for row in rows if row["dag_id"] == name) for name in CLOCKS}
        assert len(moments["once"]) == 1
        assert len(moments["cron"]) == len(set(moments["cron"]))
        assert all(after - before == timedelta(minutes=1) for before, after in pairwise(moments["cron"]))
        delta = moments["delta"]
        assert delta[0] == start
        assert all(after - before == timedelta(seconds=1) for before, after in pairwise(delta))
        return len(rows)
