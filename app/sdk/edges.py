"""Who runs before whom: ``>>``, ``<<``, ``chain`` and ``cross_downstream``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from app.sdk.errors import DeclarationError, DependencyCycle

if TYPE_CHECKING:
    from app.sdk.operators.base import BaseOperator


class Node:
    """Something that can stand on either side of ``>>``: a task, a task's result, a group of tasks."""

    def first_tasks(self) -> Sequence[BaseOperator]:
        """The tasks that wait for what is written before this node."""
        raise NotImplementedError

    def last_tasks(self) -> Sequence[BaseOperator]:
        """The tasks for which what is written after this node waits."""
        raise NotImplementedError

    def set_downstream(self, others: Any, edge_modifier: object = None) -> None:
        """Let ``others`` (a node or a list of nodes) run after this one."""
        for other in nodes(others):
            _join(self, other)

    def set_upstream(self, others: Any, edge_modifier: object = None) -> None:
        """Let this node run after ``others``."""
        for other in nodes(others):
            _join(other, self)

    def __rshift__(self, other: Any) -> Any:
        self.set_downstream(other)
        return other

    def __lshift__(self, other: Any) -> Any:
        self.set_upstream(other)
        return other

    def __rrshift__(self, other: Any) -> Any:
        self.set_upstream(other)
        return self

    def __rlshift__(self, other: Any) -> Any:
        self.set_downstream(other)
        return self


def nodes(value: Any) -> list[Node]:
    """``value``, a node or a (nested) list of nodes, as a flat list. Raises :class:`TypeError` for anything else."""
    if isinstance(value, Node):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict)):
        return [node for member in value for node in nodes(member)]
    raise TypeError(f"{value!r} is no task: only tasks, their results and task groups can depend on each other")


def chain(*steps: Any) -> None:
    """Let each step run after the one before it.

    A step is a node or a list of nodes; two lists that follow each other are joined pairwise and must be of one length.
    """
    for before, after in pairwise(steps):
        if isinstance(before, Node) or isinstance(after, Node):
            for left in nodes(before):
                left.set_downstream(after)
            continue
        lefts, rights = nodes(before), nodes(after)
        if len(lefts) != len(rights):
            raise DeclarationError(
                f"chain: lists that follow each other must be of one length, not {len(lefts)} and {len(rights)}"
            )
        for left, right in zip(lefts, rights, strict=True):
            left.set_downstream(right)


def cross_downstream(from_tasks: Any, to_tasks: Any) -> None:
    """Let each of ``to_tasks`` run after each of ``from_tasks``."""
    for left in nodes(from_tasks):
        left.set_downstream(to_tasks)


def ordered(upstream: dict[str, list[str]]) -> list[str]:
    """Task ids so that each comes after its upstream, otherwise in the order given.

    Raises :class:`DependencyCycle` naming the path.
    """
    done: dict[str, None] = {}
    for start in upstream:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            task_id, is_left = stack.pop()
            if is_left:
                path.pop()
                done[task_id] = None
            elif task_id not in done:
                if task_id in path:
                    circle = [*path[path.index(task_id) :], task_id]
                    raise DependencyCycle("tasks depend on each other in a circle: " + " → ".join(reversed(circle)))
                path.append(task_id)
                stack.append((task_id, True))
                stack.extend((other, False) for other in reversed(upstream[task_id]))
    return list(done)


def _join(before: Node, after: Node) -> None:
    for left in before.last_tasks():
        for right in after.first_tasks():
            left.link(right)
