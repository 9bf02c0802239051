"""Values that a declaration names and that only exist once a task runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.sdk.edges import Node
from app.sdk.errors import DeclarationError

if TYPE_CHECKING:
    from app.sdk.operators.base import BaseOperator

RETURN_KEY = "return_value"


class LateValue:
    """Stands in a template field or argument for a value that :meth:`resolve` gives when the task runs."""

    def resolve(self, context: Mapping[str, Any]) -> Any:
        """The value, in the context of the task that asks."""
        raise NotImplementedError


class ParamReference(LateValue):
    """The value of a param of the run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def resolve(self, context: Mapping[str, Any]) -> Any:
        return context["params"][self.name]

    def __str__(self) -> str:
        return f"{{{{ params[{self.name!r}] }}}}"


class XComArg(Node, LateValue):
    """What a task will have pushed under ``key``. ``result["name"]`` is the value it pushes under another key."""

    def __init__(self, operator: BaseOperator, key: str = RETURN_KEY) -> None:
        self.operator = operator
        self.key = key

    def resolve(self, context: Mapping[str, Any]) -> Any:
        return context["ti"].xcom_pull(task_ids=self.operator.task_id, key=self.key)

    def first_tasks(self) -> Sequence[BaseOperator]:
        return [self.operator]

    def last_tasks(self) -> Sequence[BaseOperator]:
        return [self.operator]

    def __getitem__(self, key: object) -> XComArg:
        if not isinstance(key, str):
            raise DeclarationError(f"{self!r}[{key!r}]: the key of an XCom is text; take elements apart inside a task")
        return XComArg(self.operator, key)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} has no value yet and cannot be iterated while the DAG is declared; do it in a task")

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no value yet and cannot be tested while the DAG is declared; do it in a task")

    def __getattr__(self, name: str) -> Any:
        if name in {"map", "zip", "expand", "concat"}:
            raise DeclarationError(f"{self!r}.{name}: dynamic task mapping is not available")
        raise AttributeError(name)

    def __str__(self) -> str:
        key = "" if self.key == RETURN_KEY else f", key={self.key!r}"
        return f"{{{{ task_instance.xcom_pull(task_ids={self.operator.task_id!r}{key}) }}}}"

    def __repr__(self) -> str:
        return f"XComArg({self.operator.task_id!r}, {self.key!r})"


def find_results(value: Any) -> Iterator[XComArg]:
    """Every :class:`XComArg` in ``value``, however deep in lists, tuples, sets and dictionaries."""
    if isinstance(value, XComArg):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset)):
        for member in value:
            yield from find_results(member)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from find_results(key)
            yield from find_results(member)
