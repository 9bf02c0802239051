"""Which DAG and task group a declaration stands in, and who wants to know of new DAGs.

Context variables, so that a failed import leaves nothing behind once its context is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.sdk.dag import DAG
    from app.sdk.task_groups import TaskGroup

_dags: ContextVar[tuple[DAG, ...]] = ContextVar("tidegate_dags", default=())
_groups: ContextVar[tuple[TaskGroup, ...]] = ContextVar("tidegate_groups", default=())
#: Not a context variable: a pipeline file may declare its DAGs in threads of its own.
_listeners: list[Callable[[DAG], None]] = []


def current_dag() -> DAG | None:
    """The DAG whose ``with`` block is open, if any."""
    dags = _dags.get()
    return dags[-1] if dags else None


def enter_dag(dag: DAG) -> None:
    """Open the block of ``dag``; its groups start afresh."""
    _dags.set((*_dags.get(), dag))


def leave_dag(dag: DAG) -> None:
    """Close the block of ``dag``."""
    _dags.set(tuple(open_dag for open_dag in _dags.get() if open_dag is not dag))


def current_group() -> TaskGroup | None:
    """The innermost open task group of the current DAG, if any."""
    dag = current_dag()
    for group in reversed(_groups.get()):
        if dag is None or group.dag is dag:
            return group
    return None


def enter_group(group: TaskGroup) -> None:
    """Open the block of ``group``."""
    _groups.set((*_groups.get(), group))


def leave_group(group: TaskGroup) -> None:
    """Close the block of ``group``."""
    _groups.set(tuple(open_group for open_group in _groups.get() if open_group is not group))


def announce(dag: DAG) -> None:
    """Tell whoever listens that ``dag`` was made."""
    for listener in _listeners:
        listener(dag)


@contextmanager
def fresh_declarations(listener: Callable[[DAG], None]) -> Iterator[None]:
    """Declarations in this block start outside of any DAG; each new DAG goes to ``listener``; nothing stays open."""
    dags, groups = _dags.set(()), _groups.set(())
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        _groups.reset(groups)
        _dags.reset(dags)
