"""The operator every task is made of."""

from __future__ import annotations

import functools
import inspect
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from app.domain.trigger_rules import TriggerRule
from app.sdk.assets import Asset
from app.sdk.edges import Node
from app.sdk.errors import DeclarationError
from app.sdk.identifiers import checked_identifier
from app.sdk.late_values import XComArg, find_results
from app.sdk.params import param_values
from app.sdk.scopes import current_dag, current_group

if TYPE_CHECKING:
    import logging

    from app.sdk.dag import DAG

Callbacks = Callable[..., Any] | Sequence[Callable[..., Any]] | None

#: Arguments of the field's operators that a file may keep although they do nothing here; the second ones change what
#: the author may rely on, so that setting them is worth a warning.
_QUIETLY_IGNORED = frozenset({
    "email", "email_on_failure", "email_on_retry", "executor", "executor_config", "map_index_template", "resources",
    "run_as_user", "sla", "start_date", "end_date", "task_display_name", "weight_rule", "allow_nested_operators",
})  # fmt: skip
_IGNORED_WITH_WARNING = frozenset({
    "depends_on_past", "wait_for_downstream", "ignore_first_depends_on_past", "max_active_tis_per_dag",
    "max_active_tis_per_dagrun", "wait_for_past_depends_before_skipping",
})  # fmt: skip


class _OperatorType(ABCMeta):
    """Fills constructor arguments from ``default_args`` and draws the edges that task results in them mean."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args:
            raise TypeError(f"{cls.__name__}: arguments of operators are given by name")
        group = kwargs.get("task_group") or current_group()
        dag = kwargs.get("dag") or (group.dag if group is not None else current_dag())
        defaults = {
            **(dag.default_args if dag is not None else {}),
            **(group.default_args if group is not None else {}),
        }
        defaults.update(kwargs.pop("default_args", None) or {})
        accepted = _parameters(cls)
        given = {name: value for name, value in defaults.items() if name in accepted and name != "task_id"}
        operator = super().__call__(**{**given, **kwargs})
        for result in operator.late_results():
            operator.set_upstream(result)
        return operator


@functools.cache
def _parameters(operator: type) -> frozenset[str]:
    """Names of the arguments that the constructors of an operator and its bases take."""
    names: set[str] = set()
    for base in operator.__mro__:
        constructor = base.__dict__.get("__init__")
        if constructor is not None and base is not object:
            names.update(
                name
                for name, parameter in inspect.signature(constructor).parameters.items()
                if parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD}
            )
    return frozenset(names - {"self"})


class BaseOperator(Node, metaclass=_OperatorType):
    """One task. Subclass it, name its :attr:`template_fields`, and do the work in :meth:`execute`.

    Arguments are given by name. ``retries`` more tries follow a failure, ``retry_delay`` (timedelta or seconds) apart.
    ``trigger_rule`` says which ends of the upstream tasks let it start. ``execution_timeout`` bounds the attempt.
    ``outlets`` get an event each time the task succeeds. Callbacks run in the task's process, after its end is known.

    Raises :class:`DeclarationError` or :class:`TypeError` naming the task.
    """

    #: Attributes that are rendered as templates before :meth:`execute`.
    template_fields: ClassVar[Sequence[str]] = ()
    #: What the operator is called in lists; the class's name unless set.
    operator_name: str = ""

    def __init__(
        self,
        *,
        task_id: str,
        dag: DAG | None = None,
        task_group: Any = None,
        owner: str = "tidegate",
        retries: int = 0,
        retry_delay: timedelta | float = timedelta(minutes=5),
        retry_exponential_backoff: bool | float = False,
        max_retry_delay: timedelta | float | None = None,
        trigger_rule: str = "all_success",
        execution_timeout: timedelta | None = None,
        pool: str | None = None,
        pool_slots: int = 1,
        priority_weight: int = 1,
        queue: str | None = None,
        inlets: Any = None,
        outlets: Any = None,
        params: Mapping[str, Any] | None = None,
        do_xcom_push: bool = True,
        multiple_outputs: bool = False,
        doc: str | None = None,
        doc_md: str | None = None,
        on_execute_callback: Callbacks = None,
        on_success_callback: Callbacks = None,
        on_failure_callback: Callbacks = None,
        on_retry_callback: Callbacks = None,
        on_skipped_callback: Callbacks = None,
        **unknown: Any,
    ) -> None:
        self.task_group = group = task_group or current_group()
        self.task_id = checked_identifier(group.child_id(task_id) if group is not None else task_id, "task_id")
        self._refuse_unknown(unknown)
        self.owner = owner
        self.retries = self._whole("retries", retries or 0, least=0)
        self.retry_delay = self._duration("retry_delay", retry_delay) or timedelta(0)
        self.retry_exponential_backoff = bool(retry_exponential_backoff)
        self.max_retry_delay = self._duration("max_retry_delay", max_retry_delay)
        self.trigger_rule = self._rule(trigger_rule)
        self.execution_timeout = self._duration("execution_timeout", execution_timeout)
        self.pool = self._pool(pool)
        self.pool_slots = self._whole("pool_slots", pool_slots, least=1)
        self.priority_weight = priority_weight
        self.queue = queue or "default"
        self.inlets = self._assets("inlets", inlets)
        self.outlets = self._assets("outlets", outlets)
        self.params = param_values(params or {})
        self.do_xcom_push = do_xcom_push
        self.multiple_outputs = multiple_outputs
        self.doc = doc
        self.doc_md = doc_md
        self.on_execute_callback = on_execute_callback
        self.on_success_callback = on_success_callback
        self.on_failure_callback = on_failure_callback
        self.on_retry_callback = on_retry_callback
        self.on_skipped_callback = on_skipped_callback
        self._join(dag)

    def execute(self, context: Any) -> Any:
        """Do the work; what is returned becomes the task's XCom ``return_value``."""
        raise NotImplementedError(f"{type(self).__name__} has no execute()")

    def on_kill(self) -> None:
        """Stop what :meth:`execute` started outside of this process: the attempt is stopped or out of time."""

    def pre_execute(self, context: Any) -> None:
        """Called just before :meth:`execute`."""

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Called just after :meth:`execute`."""

    @property
    def output(self) -> XComArg:
        """The task's result, to hand to another task."""
        return XComArg(self)

    @property
    def log(self) -> logging.Logger:
        """Writes to the attempt's log."""
        import logging

        return logging.getLogger("tidegate.task")

    @property
    def task_type(self) -> str:
        """What the operator is called in lists."""
        return self.operator_name or type(self).__name__

    @property
    def dag_id(self) -> str:
        """The id of the task's DAG."""
        return self.dag.dag_id if self.dag is not None else ""

    @property
    def upstream_list(self) -> list[BaseOperator]:
        """The tasks this one waits for."""
        return [self.dag.task_dict[task_id] for task_id in self.upstream_task_ids] if self.dag is not None else []

    @property
    def downstream_list(self) -> list[BaseOperator]:
        """The tasks that wait for this one."""
        return [self.dag.task_dict[task_id] for task_id in self.downstream_task_ids] if self.dag is not None else []

    def late_results(self) -> Iterable[XComArg]:
        """The results of other tasks that stand in this task's template fields."""
        return [found for name in self.template_fields for found in find_results(getattr(self, name, None))]

    def first_tasks(self) -> Sequence[BaseOperator]:
        return [self]

    def last_tasks(self) -> Sequence[BaseOperator]:
        return [self]

    def link(self, downstream: BaseOperator) -> None:
        """Let ``downstream`` run after this task; a task without a DAG joins that of the other."""
        if self.dag is None and downstream.dag is None:
            raise DeclarationError(f"tasks {self.task_id!r} and {downstream.task_id!r} belong to no DAG")
        if self.dag is None and downstream.dag is not None:
            downstream.dag.add_task(self)
        elif downstream.dag is None and self.dag is not None:
            self.dag.add_task(downstream)
        if self.dag is not downstream.dag:
            raise DeclarationError(
                f"tasks {self.task_id!r} ({self.dag_id!r}) and {downstream.task_id!r} ({downstream.dag_id!r}) belong "
                "to different DAGs; let an asset connect them"
            )
        self.downstream_task_ids[downstream.task_id] = None
        downstream.upstream_task_ids[self.task_id] = None

    def _join(self, dag: DAG | None) -> None:
        """Become part of the DAG and group that the task is declared in."""
        self.upstream_task_ids: dict[str, None] = {}
        self.downstream_task_ids: dict[str, None] = {}
        self.dag: DAG | None = None
        group = self.task_group
        owning = dag or (group.dag if group is not None else current_dag())
        if owning is not None:
            owning.add_task(self)
        if group is not None:
            group.add(self)

    def _refuse_unknown(self, unknown: Mapping[str, Any]) -> None:
        for name, value in unknown.items():
            if name in _IGNORED_WITH_WARNING:
                if value:
                    warnings.warn(f"task {self.task_id!r}: {name} has no effect in Tidegate", stacklevel=4)
            elif name not in _QUIETLY_IGNORED:
                raise TypeError(f"task {self.task_id!r}: {type(self).__name__} takes no argument {name!r}")

    def _pool(self, pool: str | None) -> str:
        if pool not in {None, "default_pool"}:
            warnings.warn(
                f"task {self.task_id!r}: pool {pool!r} is shown but limits nothing in this version of Tidegate; "
                "max_active_tasks of the DAG does",
                stacklevel=4,
            )
        return pool or "default_pool"

    def _whole(self, name: str, value: Any, *, least: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise DeclarationError(
                f"task {self.task_id!r}: {name} must be a whole number of at least {least}, not {value!r}"
            )
        return value

    def _duration(self, name: str, value: Any) -> timedelta | None:
        if value is None:
            return None
        duration = timedelta(seconds=value) if isinstance(value, (int, float)) else value
        if not isinstance(duration, timedelta) or duration < timedelta(0):
            raise DeclarationError(
                f"task {self.task_id!r}: {name} must be a timedelta that is not negative, not {value!r}"
            )
        return duration

    def _rule(self, value: Any) -> TriggerRule:
        try:
            return TriggerRule(str(value))
        except ValueError:
            known = ", ".join(TriggerRule)
            raise DeclarationError(
                f"task {self.task_id!r}: trigger_rule {str(value)!r} is unknown; known: {known}"
            ) from None

    def _assets(self, name: str, value: Any) -> list[Asset]:
        assets = [value] if isinstance(value, Asset) else list(value or ())
        for asset in assets:
            if not isinstance(asset, Asset):
                raise TypeError(f"task {self.task_id!r}: {name} must be assets, not {asset!r}")
        return list(dict.fromkeys(assets))

    def __repr__(self) -> str:
        return f"<{self.task_type}: {self.task_id}>"
