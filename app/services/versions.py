"""DAG versions as schedulers use them: decoded once, kept while they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from app.domain.conditions import Clause, clauses
from app.domain.runs import TaskGraph
from app.domain.specs import DagSpec
from app.domain.states import TaskState
from app.kernel.errors import TidegateError
from app.store import versions as statements
from app.store.database import Database, HotConnection
from app.store.runs import NewInstance

_KEPT = 1_000


class UnusableVersion(TidegateError):
    """Version {version_id} of DAG {dag_id} cannot be used: {reason}. Change the pipeline file to have a new version
    made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DagVersion:
    """A version with everything that follows from its declaration."""

    id: int
    dag_id: str
    bundle_digest: str
    entry: str
    spec: DagSpec
    graph: TaskGraph
    clauses: tuple[Clause, ...]
    instances: tuple[NewInstance, ...]
    unstarted: tuple[NewInstance, ...]


class Versions:
    """The versions of one database, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, DagVersion] = OrderedDict()

    async def get(self, hot: HotConnection, version_id: int) -> DagVersion:
        """A version by its id.

        Raises:
            UnusableVersion: It does not exist, or what is stored of it cannot be read.
        """
        known = self._known.get(version_id)
        if known is None:
            known = self._known[version_id] = await _read(hot, version_id)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(version_id)
        return known

    def known(self, version_id: int) -> DagVersion | None:
        """A version if it was used lately."""
        return self._known.get(version_id)


_VERSIONS: WeakKeyDictionary[Database, Versions] = WeakKeyDictionary()


def versions_of(database: Database) -> Versions:
    """What this process knows of the versions in ``database``; ids mean nothing in another one."""
    return _VERSIONS.setdefault(database, Versions())


async def _read(hot: HotConnection, version_id: int) -> DagVersion:
    row = await statements.read_version(hot, version_id=version_id)
    if row is None:
        raise UnusableVersion(version_id=version_id, dag_id="?", reason="it is not stored")
    try:
        spec = msgspec.json.decode(row.spec, type=DagSpec)
        graph = TaskGraph.of(spec.tasks)
        found = clauses(spec.schedule.condition) if spec.schedule.condition is not None else ()
    except ValueError as error:  # the decoder's, the condition's and the graph's refusals alike
        reason = f"{type(error).__name__}: {error}"
        raise UnusableVersion(version_id=version_id, dag_id=row.dag_id, reason=reason) from error
    instances = tuple(_instances(graph))
    return DagVersion(
        id=row.id,
        dag_id=row.dag_id,
        bundle_digest=row.bundle_digest,
        entry=row.entry,
        spec=spec,
        graph=graph,
        clauses=found,
        instances=instances,
        unstarted=tuple(msgspec.structs.replace(one, state=TaskState.NONE) for one in instances),
    )


def _instances(graph: TaskGraph) -> list[NewInstance]:
    return [
        NewInstance(
            task_id=task.task_id,
            state=TaskState.SCHEDULED if task.task_id in graph.roots else TaskState.NONE,
            max_tries=task.retries,
            pool=task.pool,
            pool_slots=task.pool_slots,
            queue=task.queue,
            priority_weight=task.priority_weight,
            operator=task.operator,
        )
        for task in graph.tasks.values()
    ]
