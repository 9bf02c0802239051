"""DAGs as authors write them."""

from __future__ import annotations

import difflib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, overload

from app.sdk.assets import Asset
from app.sdk.edges import ordered
from app.sdk.errors import DeclarationError, DuplicateTaskId
from app.sdk.identifiers import checked_identifier
from app.sdk.late_values import ParamReference
from app.sdk.params import param_values
from app.sdk.schedules import schedule_assets, schedule_spec
from app.sdk.scopes import announce, enter_dag, leave_dag

if TYPE_CHECKING:
    from app.sdk.operators.base import BaseOperator

#: Arguments of the field's DAG that a file may keep; they do nothing here and a warning says so.
_WITHOUT_EFFECT = frozenset({
    "access_control", "deadline", "default_view", "disable_bundle_versioning", "jinja_environment_kwargs",
    "max_consecutive_failed_dag_runs", "on_failure_callback", "on_success_callback", "orientation",
    "owner_links", "sla_miss_callback", "template_undefined",
})  # fmt: skip


class DAG:
    """Tasks, their order, and what starts a run of them. Use it as a context manager: tasks inside belong to it.

    ``schedule`` is ``None``, ``"@once"``, ``"@continuous"``, cron text or a preset, a ``timedelta``, an asset, a
    condition of assets, a list of assets (all of them), or an ``AssetSchedule``. ``max_active_runs`` and
    ``max_active_tasks`` left out mean the deployment's defaults. ``start_date`` and ``end_date`` without a time zone
    are read in UTC, with a warning. ``"@continuous"`` (with ``max_active_runs=1`` and at least one task) starts a run
    when the one before has ended, and not sooner than one second after the start of that one.

    Raises :class:`DeclarationError`, :class:`TypeError` or :class:`ValueError` naming the DAG.
    """

    def __init__(
        self,
        dag_id: str,
        *,
        schedule: Any = None,
        description: str | None = None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
        catchup: bool = False,
        params: Mapping[str, Any] | None = None,
        default_args: Mapping[str, Any] | None = None,
        max_active_runs: int | None = None,
        max_active_tasks: int | None = None,
        dagrun_timeout: timedelta | None = None,
        tags: Iterable[str] = (),
        doc_md: str | None = None,
        dag_display_name: str | None = None,
        is_paused_upon_creation: bool | None = None,
        render_template_as_native_obj: bool = False,
        template_searchpath: str | Sequence[str] | None = None,
        user_defined_macros: Mapping[str, Any] | None = None,
        user_defined_filters: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        self.dag_id = checked_identifier(dag_id, "dag_id")
        self._refuse_unknown(unknown)
        self.description = description
        self.start_date = self._moment("start_date", start_date)
        self.end_date = self._moment("end_date", end_date)
        self.max_active_runs = self._limit("max_active_runs", max_active_runs)
        self.max_active_tasks = self._limit("max_active_tasks", max_active_tasks)
        if dagrun_timeout is not None and not isinstance(dagrun_timeout, timedelta):
            raise DeclarationError(f"DAG {dag_id!r}: dagrun_timeout must be a timedelta, not {dagrun_timeout!r}")
        if dagrun_timeout is not None:
            warnings.warn(
                f"DAG {dag_id!r}: dagrun_timeout is shown but not enforced in this version of Tidegate", stacklevel=2
            )
        self.dagrun_timeout = dagrun_timeout
        self.catchup = bool(catchup)
        self.schedule = schedule
        try:
            self.schedule_spec = schedule_spec(schedule, start=self.start_date, max_active_runs=max_active_runs)
            self.params = param_values(params or {})
        except (TypeError, ValueError) as error:
            raise DeclarationError(f"DAG {dag_id!r}: {error}") from error
        self.default_args: dict[str, Any] = dict(default_args or {})
        self.tags = (tags,) if isinstance(tags, str) else tuple(dict.fromkeys(map(str, tags)))
        self.doc_md = doc_md
        self.dag_display_name = dag_display_name
        self.is_paused_upon_creation = is_paused_upon_creation
        self.render_template_as_native_obj = render_template_as_native_obj
        self.template_searchpath = template_searchpath
        self.user_defined_macros = dict(user_defined_macros or {})
        self.user_defined_filters = dict(user_defined_filters or {})
        self.task_dict: dict[str, BaseOperator] = {}
        self.declared_at = _declaration_frame()
        announce(self)

    def _refuse_unknown(self, unknown: Mapping[str, Any]) -> None:
        for name in unknown:
            if name in _WITHOUT_EFFECT:
                warnings.warn(f"DAG {self.dag_id!r}: {name} has no effect in this version of Tidegate", stacklevel=3)
                continue
            known = [parameter for parameter in inspect.signature(DAG).parameters if parameter != "unknown"]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            if name == "schedule_interval":
                hint = "; it is called 'schedule'"
            raise TypeError(f"DAG {self.dag_id!r}: unknown argument {name!r}{hint}")

    def _moment(self, name: str, value: Any) -> datetime | None:
        if value is None:
            return None
        if not isinstance(value, datetime):
            raise DeclarationError(f"DAG {self.dag_id!r}: {name} must be a datetime, not {value!r}")
        if value.tzinfo is None or value.utcoffset() is None:
            warnings.warn(f"DAG {self.dag_id!r}: {name} has no time zone and is read as UTC", stacklevel=3)
            return value.replace(tzinfo=UTC)
        return value

    def _limit(self, name: str, value: Any) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DeclarationError(f"DAG {self.dag_id!r}: {name} must be a whole number of at least 1, not {value!r}")
        return value

    @property
    def tasks(self) -> list[BaseOperator]:
        """The tasks in the order of their declaration."""
        return list(self.task_dict.values())

    @property
    def task_ids(self) -> list[str]:
        """The ids of the tasks in the order of their declaration."""
        return list(self.task_dict)

    def has_task(self, task_id: str) -> bool:
        """Whether there is a task of this id."""
        return task_id in self.task_dict

    def get_task(self, task_id: str) -> BaseOperator:
        """The task of this id. Raises :class:`KeyError` naming the DAG."""
        try:
            return self.task_dict[task_id]
        except KeyError:
            raise KeyError(f"DAG {self.dag_id!r} has no task {task_id!r}") from None

    def add_task(self, task: BaseOperator) -> None:
        """Take ``task`` in. Raises :class:`DuplicateTaskId` if another one has its id."""
        if self.task_dict.setdefault(task.task_id, task) is not task:
            raise DuplicateTaskId(f"DAG {self.dag_id!r}: two tasks are called {task.task_id!r}")
        task.dag = self

    def topological_sort(self) -> list[BaseOperator]:
        """The tasks so that each comes after its upstream. Raises :class:`DependencyCycle` naming the path."""
        order = ordered({task.task_id: list(task.upstream_task_ids) for task in self.tasks})
        return [self.task_dict[task_id] for task_id in order]

    def assets(self) -> list[Asset]:
        """Every asset that schedule, inlets and outlets mention, each mention of it."""
        mentioned = list(schedule_assets(self.schedule))
        for task in self.tasks:
            mentioned += [*task.inlets, *task.outlets]
        return mentioned

    def test(self, *, event: Any = None, run_conf: Mapping[str, Any] | None = None) -> Any:
        """Run the DAG once in this process, without services; see ``app.sdk.local_run``."""
        from app.sdk.local_run import run_declared_dag

        return run_declared_dag(self, event=event, conf=run_conf or {})

    def __enter__(self) -> DAG:
        enter_dag(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_dag(self)

    def __repr__(self) -> str:
        return f"<DAG: {self.dag_id}>"


@overload
def dag(function: Callable[..., Any], /) -> Callable[..., DAG]: ...


@overload
def dag(dag_id: str | None = None, /, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., DAG]]: ...


def dag(dag_id: str | Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function that declares tasks into one that declares a DAG of its name each time it is called.

    The function's parameters become ``params`` of the DAG, its docstring the ``doc_md`` unless one is given.
    """

    def decorate(declare: Callable[..., Any]) -> Callable[..., DAG]:
        chosen = options.pop("dag_id", None) or (dag_id if isinstance(dag_id, str) else None) or declare.__name__

        @wraps(declare)
        def build(*args: Any, **kwargs: Any) -> DAG:
            bound = inspect.signature(declare).bind(*args, **kwargs)
            bound.apply_defaults()
            settings = dict(options)
            settings.setdefault("doc_md", inspect.getdoc(declare))
            settings["params"] = {**(settings.get("params") or {}), **bound.arguments}
            with DAG(chosen, **settings) as built:
                declare(**{name: ParamReference(name) for name in bound.arguments})
            return built

        return build

    return decorate(dag_id) if callable(dag_id) else decorate


def _declaration_frame() -> tuple[tuple[str, int], ...]:
    """Where the DAG is made: file and line of each calling frame, from the innermost out to the module being run."""
    places: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        if frame.f_code.co_name == "<module>":
            break
        frame = frame.f_back
    return tuple(places)
