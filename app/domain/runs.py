"""Runs: their ids, and how a run's task instances move on until the run ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from graphlib import TopologicalSorter

from app.domain.specs import TaskSpec
from app.domain.states import FINAL_TASK_STATES, RunState, RunType, TaskState
from app.domain.trigger_rules import Decision, TriggerRule, decide

_FAILURES = frozenset({TaskState.FAILED, TaskState.UPSTREAM_FAILED})
_TASK_STATE = {
    Decision.READY: TaskState.SCHEDULED,
    Decision.SKIPPED: TaskState.SKIPPED,
    Decision.UPSTREAM_FAILED: TaskState.UPSTREAM_FAILED,
}


#: Ids that go into URLs, file names and templates without surprises. ``~`` means "all" in URLs.
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~:+@-]{0,249}")


def checked_run_id(run_id: str) -> str:
    """A run id of a caller's choice. Raises :class:`ValueError` with the rule."""
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(
            "a run id has at most 250 letters, digits and characters of _ . ~ : + @ -, the first a letter, a digit or _"
        )
    return run_id


def make_run_id(run_type: RunType, moment: datetime, *, suffix: str | None = None) -> str:
    """``<type>__<ISO moment in UTC>`` and, where runs may share a moment, ``_<suffix>``."""
    text = f"{run_type}__{moment.astimezone(UTC).isoformat()}"
    return f"{text}_{suffix}" if suffix else text


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """The tasks of one DAG version, each after those upstream of it."""

    tasks: Mapping[str, TaskSpec]
    leaves: frozenset[str]
    roots: frozenset[str]

    @classmethod
    def of(cls, tasks: Sequence[TaskSpec]) -> TaskGraph:
        """Build the graph. An edge to a task that does not exist is ignored: it can never end.

        Raises:
            graphlib.CycleError: The edges form a cycle.
        """
        by_id = {task.task_id: task for task in tasks}
        sorter = TopologicalSorter({task.task_id: [u for u in task.upstream if u in by_id] for task in tasks})
        inner = {upstream for task in tasks for upstream in task.upstream}
        return cls(
            tasks={task_id: by_id[task_id] for task_id in sorter.static_order()},
            leaves=frozenset(by_id.keys() - inner),
            roots=frozenset(task.task_id for task in tasks if _is_ready_at_once(task, by_id)),
        )


def _is_ready_at_once(task: TaskSpec, tasks: Mapping[str, TaskSpec]) -> bool:
    return TriggerRule(task.trigger_rule) is TriggerRule.ALWAYS or not any(u in tasks for u in task.upstream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A task instance of a run, as far as advancing the run needs it."""

    id: int
    task_id: str
    state: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What follows from the states of a run's instances: moves of instances (with the reason), and the run's end."""

    moves: tuple[tuple[int, TaskState, str], ...]
    end: RunState | None


def advance(graph: TaskGraph, instances: Iterable[Instance]) -> Advance:
    """Decide every undecided instance by its trigger rule, cascading downstream, and the run's end state."""
    states: dict[str, list[TaskState]] = {}
    waiting: dict[str, list[int]] = {}
    for member in instances:
        states.setdefault(member.task_id, []).append(member.state)
        if member.state is TaskState.NONE:
            waiting.setdefault(member.task_id, []).append(member.id)
    moves: list[tuple[int, TaskState, str]] = []
    # Each task comes after those upstream of it, so that one pass is the fixed point.
    for task_id in [*graph.tasks, *(waiting.keys() - graph.tasks.keys())] if waiting else ():
        if task_id not in waiting:
            continue
        target, reason = _target(graph, task_id, states)
        if target is not None:
            moves.extend((member_id, target, reason) for member_id in waiting[task_id])
            states[task_id] = [target if state is TaskState.NONE else state for state in states[task_id]]
    return Advance(moves=tuple(moves), end=end_state(graph, states))


def _target(graph: TaskGraph, task_id: str, states: Mapping[str, list[TaskState]]) -> tuple[TaskState | None, str]:
    task = graph.tasks.get(task_id)
    if task is None:
        return TaskState.REMOVED, "the run's version has no such task"
    rule = TriggerRule(task.trigger_rule)
    upstream = [state for name in task.upstream if name in graph.tasks for state in states.get(name, ())]
    decision = decide(rule, upstream)
    target = _TASK_STATE.get(decision)
    if target is None or target is TaskState.SCHEDULED:
        return target, ""
    return target, f"trigger rule {rule} cannot be met by: {_listed(task, states)}"


def _listed(task: TaskSpec, states: Mapping[str, list[TaskState]]) -> str:
    parts = [f"{name} {state}" for name in task.upstream for state in states.get(name, ())]
    return ", ".join(parts[:5]) + (f" and {len(parts) - 5} more" if len(parts) > 5 else "")


def end_state(graph: TaskGraph, states: Mapping[str, Sequence[TaskState]]) -> RunState | None:
    """How the run ends: failed if a leaf failed or could not run, else success; None while a task is not final."""
    if any(state not in FINAL_TASK_STATES for members in states.values() for state in members):
        return None
    failed = any(state in _FAILURES for leaf in graph.leaves for state in states.get(leaf, ()))
    return RunState.FAILED if failed else RunState.SUCCESS
