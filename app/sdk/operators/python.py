"""Tasks that are Python functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from app.sdk.assets import Metadata
from app.sdk.errors import DeclarationError
from app.sdk.interruptions import run_coroutine
from app.sdk.operators.base import BaseOperator


class PythonOperator(BaseOperator):
    """Calls ``python_callable`` with ``op_args`` and ``op_kwargs``; both are rendered as templates.

    Parameters of the function that bear the name of a context variable get it; ``**kwargs`` gets all. The function may
    be ``async def``. If it is a generator function, it yields :class:`Metadata` for the task's outlets.
    """

    template_fields: ClassVar[Sequence[str]] = ("templates_dict", "op_args", "op_kwargs")

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        templates_dict: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not callable(python_callable):
            raise TypeError(f"task {self.task_id!r}: python_callable must be callable, not {python_callable!r}")
        self.python_callable = python_callable
        self.op_args = list(op_args or ())
        self.op_kwargs = dict(op_kwargs or {})
        self.templates_dict = dict(templates_dict) if templates_dict is not None else None

    def execute(self, context: Any) -> Any:
        if self.templates_dict is not None:
            context = context.extended(templates_dict=self.templates_dict)
        arguments = {**context_arguments(self.python_callable, context, given=self.op_kwargs), **self.op_kwargs}
        check_arguments(self.python_callable, self.op_args, arguments)
        return call(self.python_callable, self.op_args, arguments, context=context)


def context_arguments(function: Callable[..., Any], context: Any, *, given: Collection[str]) -> dict[str, Any]:
    """The context variables that ``function`` asks for by the names of its parameters."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in without signature
        return {}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {name: value for name, value in context.items() if name not in given}
    named = {
        name: parameter
        for name, parameter in parameters.items()
        if name not in given and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY}
    }
    found = {name: context[name] for name in named if name in context}
    for name, parameter in named.items():
        if name not in found and parameter.default is parameter.empty and context.explains(name):
            found[name] = context[name]  # raises the sentence that names the alternative
    return found


def check_arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call that cannot be made, before any of the author's code runs. Raises :class:`TypeError`."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    positional = list(signature.parameters.values())[: len(args)]
    free = {name: value for name, value in kwargs.items() if name not in {parameter.name for parameter in positional}}
    try:
        signature.bind(*args, **free)
    except TypeError as error:
        raise TypeError(f"{getattr(function, '__name__', 'the function')}(): {error}") from None


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, context: Any) -> Any:
    """Call ``function``, plain or ``async``; a generator's :class:`Metadata` go to the task's outlet events."""
    positional = set()
    if args:
        try:
            positional = {name for name, _ in zip(inspect.signature(function).parameters, args, strict=False)}
        except (TypeError, ValueError):
            positional = set()
    result = function(*args, **{name: value for name, value in kwargs.items() if name not in positional})
    if inspect.isgenerator(result):
        while True:
            try:
                _take(next(result), context)
            except StopIteration as stop:
                return stop.value
    if inspect.isasyncgen(result) or inspect.isawaitable(result):
        return run_coroutine(_finish(result, context))
    return result


async def _finish(result: Any, context: Any) -> Any:
    if inspect.isawaitable(result):
        return await result
    async for item in result:
        _take(item, context)
    return None


def _take(item: Any, context: Any) -> None:
    if not isinstance(item, Metadata):
        raise DeclarationError(
            f"a generator task yields Metadata for its outlets, not {type(item).__name__}; return other values"
        )
    context["outlet_events"][item.asset].extra.update(item.extra)
