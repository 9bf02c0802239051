"""Task groups: a prefix for ids, shared defaults, and one node for ``>>``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any

from app.sdk.edges import Node
from app.sdk.errors import DeclarationError
from app.sdk.identifiers import checked_identifier
from app.sdk.scopes import current_dag, current_group, enter_group, leave_group

if TYPE_CHECKING:
    from app.sdk.dag import DAG
    from app.sdk.operators.base import BaseOperator


class TaskGroup(Node):
    """Tasks declared inside ``with TaskGroup("name"):`` get ids with the prefix ``name.``.

    ``default_args`` go over those of the DAG. Joined by ``>>``, a group stands for its first or last tasks at
    that moment.
    """

    def __init__(
        self,
        group_id: str,
        *,
        prefix_group_id: bool = True,
        default_args: Mapping[str, Any] | None = None,
        dag: DAG | None = None,
        tooltip: str = "",
    ) -> None:
        self.parent = current_group()
        self.dag = dag or current_dag()
        if self.dag is None:
            raise DeclarationError(f"task group {group_id!r} is outside of a DAG")
        self.prefix_group_id = prefix_group_id
        self.group_id = self.parent.child_id(group_id) if self.parent else group_id
        checked_identifier(self.group_id, "task group id")
        self.default_args: dict[str, Any] = {
            **(self.parent.default_args if self.parent else {}),
            **(default_args or {}),
        }
        self.tooltip = tooltip
        self.tasks: list[BaseOperator] = []

    def child_id(self, label: str) -> str:
        """The id of a task or group called ``label`` in this group."""
        return f"{self.group_id}.{label}" if self.prefix_group_id else label

    def add(self, task: BaseOperator) -> None:
        """Take ``task`` into this group and those around it."""
        self.tasks.append(task)
        if self.parent is not None:
            self.parent.add(task)

    def first_tasks(self) -> Sequence[BaseOperator]:
        members = {task.task_id for task in self.tasks}
        return [task for task in self.tasks if not members & set(task.upstream_task_ids)]

    def last_tasks(self) -> Sequence[BaseOperator]:
        inner = {upstream for task in self.tasks for upstream in task.upstream_task_ids}
        return [task for task in self.tasks if task.task_id not in inner]

    def __enter__(self) -> TaskGroup:
        enter_group(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_group(self)


def task_group(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function that declares tasks into one that declares them inside a group of its name."""

    def decorate(declare: Callable[..., Any]) -> Callable[..., Any]:
        settings = dict(options)
        group_id = settings.pop("group_id", declare.__name__)

        @wraps(declare)
        def build(*args: Any, **kwargs: Any) -> Any:
            with TaskGroup(group_id, **settings) as group:
                result = declare(*args, **kwargs)
            return group if result is None else result

        return build

    return decorate if function is None else decorate(function)
