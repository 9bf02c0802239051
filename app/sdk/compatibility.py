"""The field's import names, answered with our own classes where its package is not installed.

A finder at the end of ``sys.meta_path``: the real package wins if there is one. Only interpreters that import pipeline
files have it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

PREFIX = "airflow"

_OPERATORS = {"BaseOperator": "app.sdk.operators.base"}
_PYTHON = {"PythonOperator": "app.sdk.operators.python", "get_current_context": "app.sdk.context"}
_BASH = {"BashOperator": "app.sdk.operators.bash"}
_EMPTY = {"EmptyOperator": "app.sdk.operators.empty"}
_ASSETS = dict.fromkeys(("Asset", "AssetAll", "AssetAny", "Metadata"), "app.sdk.assets") | {
    "AssetWatcher": "watchers.watcher"
}
_TRIGGERS = dict.fromkeys(("BaseEventTrigger", "BaseTrigger", "TriggerEvent"), "watchers.triggers")
_TEMPORAL = dict.fromkeys(("DateTimeTrigger", "TimeDeltaTrigger"), "watchers.temporal")
_EXCEPTIONS = {
    "AirflowException": "builtins:Exception",
    "AirflowFailException": "app.sdk.errors:FailTask",
    "AirflowSkipException": "app.sdk.errors:SkipTask",
    "AirflowTaskTimeout": "app.sdk.errors:TaskTimeout",
}

#: Module name → the names it has → where they come from (``module`` or ``module:name``).
MODULES: dict[str, dict[str, str]] = {
    "airflow": {"DAG": "app.sdk.dag"},
    "airflow.decorators": {"dag": "app.sdk.dag", "task": "app.sdk.decorators", "task_group": "app.sdk.task_groups"},
    "airflow.exceptions": _EXCEPTIONS,
    "airflow.models": {
        "DAG": "app.sdk.dag", "Connection": "watchers.connections", "Param": "app.sdk.params",
        "Variable": "app.sdk.variables", **_OPERATORS,
    },
    "airflow.models.baseoperator": {
        "chain": "app.sdk.edges", "cross_downstream": "app.sdk.edges", **_OPERATORS,
    },
    "airflow.models.connection": {"Connection": "watchers.connections"},
    "airflow.models.dag": {"DAG": "app.sdk.dag", "dag": "app.sdk.dag"},
    "airflow.models.param": {"Param": "app.sdk.params"},
    "airflow.models.variable": {"Variable": "app.sdk.variables"},
    "airflow.models.xcom_arg": {"XComArg": "app.sdk.late_values"},
    "airflow.operators": {},
    "airflow.operators.bash": _BASH,
    "airflow.operators.empty": _EMPTY,
    "airflow.operators.python": _PYTHON,
    "airflow.providers": {},
    "airflow.providers.common": {},
    "airflow.providers.common.messaging": {},
    "airflow.providers.common.messaging.triggers": {},
    "airflow.providers.common.messaging.triggers.msg_queue": {"MessageQueueTrigger": "watchers.message_queue"},
    "airflow.providers.common.messaging.providers": {},
    "airflow.providers.common.messaging.providers.base_provider": {"BaseMessageQueueProvider": "watchers.provider"},
    "airflow.providers.standard": {},
    "airflow.providers.standard.operators": {},
    "airflow.providers.standard.operators.bash": _BASH,
    "airflow.providers.standard.operators.empty": _EMPTY,
    "airflow.providers.standard.operators.python": _PYTHON,
    "airflow.sdk": {
        "DAG": "app.sdk.dag", "Connection": "watchers.connections", "Context": "app.sdk.context",
        "Param": "app.sdk.params", "TaskGroup": "app.sdk.task_groups",
        "TriggerRule": "app.domain.trigger_rules", "Variable": "app.sdk.variables", "XComArg": "app.sdk.late_values",
        "chain": "app.sdk.edges", "cross_downstream": "app.sdk.edges", "dag": "app.sdk.dag",
        "get_current_context": "app.sdk.context", "task": "app.sdk.decorators", "task_group": "app.sdk.task_groups",
        **_ASSETS, **_OPERATORS,
    },
    "airflow.sdk.bases": {},
    "airflow.sdk.bases.operator": _OPERATORS | {"chain": "app.sdk.edges", "cross_downstream": "app.sdk.edges"},
    "airflow.providers.standard.triggers": {},
    "airflow.providers.standard.triggers.temporal": _TEMPORAL,
    "airflow.sdk.definitions": {},
    "airflow.sdk.definitions.context": {"Context": "app.sdk.context", "get_current_context": "app.sdk.context"},
    "airflow.triggers.temporal": _TEMPORAL,
    "airflow.utils.context": {"Context": "app.sdk.context"},
    "airflow.sdk.definitions.asset": _ASSETS,
    "airflow.sdk.definitions.asset.metadata": {"Metadata": "app.sdk.assets"},
    "airflow.sdk.exceptions": _EXCEPTIONS,
    "airflow.triggers": {},
    "airflow.triggers.base": _TRIGGERS,
    "airflow.utils": {},
    "airflow.utils.task_group": {"TaskGroup": "app.sdk.task_groups"},
    "airflow.utils.trigger_rule": {"TriggerRule": "app.domain.trigger_rules"},
}  # fmt: skip


def install() -> Callable[[], None]:
    """Answer the field's import names from now on. Returns what takes it back."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return lambda: None
    finder = _Finder()
    sys.meta_path.append(finder)

    def undo() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for name, module in list(sys.modules.items()):
            if isinstance(module, _Alias):
                del sys.modules[name]

    return undo


class _Alias(ModuleType):
    """A module of the field's name whose members are ours."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        names = MODULES[self.__name__]
        source = names.get(name)
        if not source:
            known = ", ".join(sorted(known for known, place in names.items() if place)) or "nothing"
            raise ImportError(
                f"Tidegate has no {name!r} in {self.__name__!r} (it has {known}), and the package of that name is not "
                "installed",
                name=self.__name__,
            )
        module, _, member = source.partition(":")
        value = getattr(importlib.import_module(module), member or name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != PREFIX and not fullname.startswith(f"{PREFIX}."):
            return None
        if fullname in MODULES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        parent = fullname.rpartition(".")[0]
        if isinstance(sys.modules.get(parent), _Alias):
            known = ", ".join(sorted(name for name, members in MODULES.items() if members))
            raise ModuleNotFoundError(
                f"Tidegate has no module {fullname!r}, and the package of that name is not installed; it has {known}",
                name=fullname,
            )
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Alias(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: members are looked up when asked for."""
