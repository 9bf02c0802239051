"""``@task``: functions as tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, get_origin, overload

from app.sdk.errors import DeclarationError
from app.sdk.late_values import XComArg
from app.sdk.operators.base import BaseOperator
from app.sdk.operators.bash import BashOperator
from app.sdk.operators.python import PythonOperator, call, context_arguments
from app.sdk.scopes import current_dag, current_group

#: Names that a caller may leave out although the function has no default for them: they come from the context.
_FROM_CONTEXT = frozenset({
    "conn", "dag", "dag_run", "data_interval_end", "data_interval_start", "ds", "ds_nodash", "idempotency_key",
    "inlet_events", "inlets", "logical_date", "macros", "outlet_events", "outlets", "params", "run_id", "task",
    "task_instance", "ti", "triggering_asset_events", "ts", "ts_nodash", "var",
})  # fmt: skip


class DecoratedPythonOperator(PythonOperator):
    """A call of a ``@task`` function."""

    operator_name = "@task"
    template_fields: ClassVar[Sequence[str]] = ("templates_dict", "op_args", "op_kwargs")


class DecoratedBashOperator(BashOperator):
    """A call of a ``@task.bash`` function: it returns the command."""

    operator_name = "@task.bash"
    template_fields: ClassVar[Sequence[str]] = ("op_args", "op_kwargs", "env", "cwd")

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] = (),
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bash_command="", **kwargs)
        self.python_callable = python_callable
        self.op_args = list(op_args)
        self.op_kwargs = dict(op_kwargs or {})

    def execute(self, context: Any) -> str:
        from app.sdk.templates import render_text

        arguments = {**context_arguments(self.python_callable, context, given=self.op_kwargs), **self.op_kwargs}
        command = call(self.python_callable, self.op_args, arguments, context=context)
        if not isinstance(command, str) or not command.strip():
            raise TypeError(f"a @task.bash function returns the command as text, not {command!r}")
        self.bash_command = str(render_text(command, context, dag=context["dag"], field=f"{self.task_id}.bash_command"))
        return super().execute(context)


class TaskFunction:
    """What a decorated function becomes: calling it declares a task and gives the task's future result."""

    def __init__(self, function: Callable[..., Any], operator: type[BaseOperator], options: Mapping[str, Any]) -> None:
        if not callable(function):
            raise TypeError(f"@task decorates a function, not {function!r}")
        self.function = function
        self.operator = operator
        self.options = dict(options)
        self.__name__ = getattr(function, "__name__", "task")
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.__module__ = function.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> XComArg:
        self._check_call(args, kwargs)
        options: dict[str, Any] = {
            "multiple_outputs": _returns_mapping(self.function),
            "doc": inspect.getdoc(self.function),
        }
        options.update(self.options)
        task_id = options.pop("task_id", None) or self.__name__
        operator = self.operator(
            task_id=_free_task_id(task_id, options),
            python_callable=self.function,
            op_args=list(args),
            op_kwargs=kwargs,
            **options,
        )
        return XComArg(operator)

    def override(self, **options: Any) -> TaskFunction:
        """The same function with other task arguments, for one call."""
        return TaskFunction(self.function, self.operator, {**self.options, **options})

    def _check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        signature = inspect.signature(self.function)
        filled = dict.fromkeys(name for name in signature.parameters if name in _FROM_CONTEXT and name not in kwargs)
        positional = list(signature.parameters)[: len(args)]
        try:
            signature.bind(*args, **{name: None for name in filled if name not in positional}, **kwargs)
        except TypeError as error:
            raise DeclarationError(f"task {self.__name__!r}: {error}") from None

    def __getattr__(self, name: str) -> Any:
        if name in {"expand", "expand_kwargs", "partial", "map"}:
            raise DeclarationError(f"task {self.__name__!r}: dynamic task mapping (.{name}) is not available")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class _TaskDecorator:
    """``@task``, ``@task(...)`` and ``@task.bash``."""

    @overload
    def __call__(self, function: Callable[..., Any], /) -> TaskFunction: ...

    @overload
    def __call__(self, /, **options: Any) -> Callable[[Callable[..., Any]], TaskFunction]: ...

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        return self._decorate(function, DecoratedPythonOperator, options)

    @overload
    def python(self, function: Callable[..., Any], /) -> TaskFunction: ...

    @overload
    def python(self, /, **options: Any) -> Callable[[Callable[..., Any]], TaskFunction]: ...

    def python(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """The same as ``@task``."""
        return self._decorate(function, DecoratedPythonOperator, options)

    @overload
    def bash(self, function: Callable[..., Any], /) -> TaskFunction: ...

    @overload
    def bash(self, /, **options: Any) -> Callable[[Callable[..., Any]], TaskFunction]: ...

    def bash(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """The function returns a shell command, which is then run."""
        return self._decorate(function, DecoratedBashOperator, options)

    def _decorate(
        self, function: Callable[..., Any] | None, operator: type[BaseOperator], options: Mapping[str, Any]
    ) -> Any:
        if function is not None:
            return TaskFunction(function, operator, options)
        return lambda decorated: TaskFunction(decorated, operator, options)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"@task.{name} is not available; known: @task, @task.bash, @task.python")


task = _TaskDecorator()


def _free_task_id(task_id: str, options: Mapping[str, Any]) -> str:
    """``task_id``, or with a number if the DAG has it: a function may be called more than once."""
    group = options.get("task_group") or current_group()
    dag = options.get("dag") or (group.dag if group is not None else current_dag())
    if dag is None:
        return task_id

    def is_taken(label: str) -> bool:
        return dag.has_task(group.child_id(label) if group is not None else label)

    candidate, number = task_id, 0
    while is_taken(candidate):
        number += 1
        candidate = f"{task_id}__{number}"
    return candidate


def _returns_mapping(function: Callable[..., Any]) -> bool:
    """Whether the function says that it returns a dictionary with text keys, each of which is to be an XCom."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        word = annotation.partition("[")[0].rpartition(".")[2].strip()
        return word in {"dict", "Dict", "Mapping"}
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, Mapping)
