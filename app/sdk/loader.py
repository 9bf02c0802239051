"""Importing one pipeline file: the same way in every process that runs its code.

The file's module is registered under its dotted path below the pipelines folder, without suffix, so that class paths
are the same everywhere. If another module of the installation would be hidden by that (a pipeline file called
``queue.py``), it is registered under ``tidegate_pipelines.`` and that path instead.

The pipelines folder and the file's own folder come last on the import path. Byte code is neither read nor written below
the folder, so that an edit within the same second counts. What :func:`load_pipeline` must leave behind for tasks that
import later (path entries, modules, the field's import names) is taken back by :meth:`LoadedFile.unload`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os.path
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from app.domain.specs import LoadResult, LocatedError
from app.sdk import compatibility
from app.sdk.blocking_calls import blocking_calls_of
from app.sdk.dag import DAG
from app.sdk.errors import DuplicateDagId, PipelineError
from app.sdk.load_errors import located, refuse_oversize
from app.sdk.module_files import files_of, is_below, loaded_modules
from app.sdk.scopes import fresh_declarations

#: Names at the top of the pipelines folder that would hide Tidegate's own packages.
RESERVED = frozenset({"app", "providers", "watchers"})
#: Where modules go whose own name is taken by the installation.
ASIDE = "tidegate_pipelines"
_MOST_WARNINGS = 100


@dataclass(slots=True, kw_only=True)
class LoadedFile:
    """A pipeline file once imported. With an ``error`` there are no DAGs."""

    root: Path
    file: str
    module_name: str
    dags: dict[str, DAG] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: LocatedError | None = None
    duration: float = 0.0
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def require(self) -> LoadedFile:
        """This file. Raises :class:`PipelineError` if it has an error."""
        if self.error is not None:
            raise PipelineError(self.error)
        return self

    def dag(self, dag_id: str) -> DAG:
        """The DAG of this id. Raises :class:`PipelineError` if the file has an error or no such DAG."""
        if dag_id not in self.require().dags:
            raise PipelineError(LocatedError(file=self.file, message=f"there is no DAG {dag_id!r} in this file"))
        return self.dags[dag_id]

    def unload(self) -> None:
        """Take modules and path entries back."""
        _forget_modules(self.root)
        while self._undo:
            self._undo.pop()()


def load_pipeline(root: str | Path, relative_path: str) -> LoadedFile:
    """Import the pipeline file ``relative_path`` of the folder ``root`` and gather the DAGs it makes.

    Nothing that the file raises gets out, not even ``SystemExit``: it becomes ``error``, with file, line and traceback.
    A DAG counts if it is made while this file is being imported, also by a function of another module; one made while a
    module that this file imports is itself being imported belongs to that module's file.
    """
    folder = Path(root).resolve()
    loaded = LoadedFile(root=folder, file=relative_path, module_name=_module_name(relative_path))
    started = time.perf_counter()
    made: list[DAG] = []
    _forget_modules(folder)
    with warnings.catch_warnings(record=True) as caught, fresh_declarations(made.append):
        warnings.simplefilter("always")
        try:
            _refuse_reserved(relative_path)
            _prepare_imports(loaded)
            module = _import_entry(loaded)
            loaded.dags = _own_dags(loaded, made, module)
        except BaseException as error:  # noqa: BLE001 - a pipeline file may raise anything; it becomes a value
            line = error.line if isinstance(error, DuplicateDagId) else None
            loaded.error = located(error, root=folder, file=relative_path, line=line)
            loaded.dags = {}
    loaded.warnings = (*loaded.warnings, *_own_warnings(caught, folder))[:_MOST_WARNINGS]
    entry = folder / relative_path
    loaded.modules = files_of(folder, entry=entry) if is_below(folder, os.path.normpath(entry)) else ()
    loaded.duration = time.perf_counter() - started
    return loaded


def describe(loaded: LoadedFile, *, max_kwargs_bytes: int | None = None) -> LoadResult:
    """Everything a loader child says about a pipeline file. Faults found only now become its ``error``.

    ``max_kwargs_bytes`` is the size of the largest arguments of a trigger, encoded (None: 64 KiB).
    """
    from app.sdk.description import describe_dag

    result = LoadResult(
        file=loaded.file,
        modules=loaded.modules,
        warnings=loaded.warnings,
        error=loaded.error,
        duration=loaded.duration,
    )
    if loaded.error is not None:
        return result
    limits = {} if max_kwargs_bytes is None else {"max_kwargs_bytes": max_kwargs_bytes}
    described = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for dag in loaded.dags.values():
            try:
                described.append(describe_dag(dag, root=loaded.root, file=loaded.file, **limits))
            except Exception as error:  # noqa: BLE001 - a trigger's serialize() may raise anything; it becomes a value
                fault = located(error, root=loaded.root, file=loaded.file, line=line_of(dag, loaded.root / loaded.file))
                return _replace(result, error=fault)
    new = tuple(text for text in _own_warnings(caught, loaded.root) if text not in result.warnings)
    blocking = blocking_calls_of(loaded.root, [name for name in loaded.modules if name.endswith(".py")])
    return _replace(
        result,
        dags=tuple(described),
        warnings=(*result.warnings, *new),
        blocking_calls=blocking[:_MOST_WARNINGS],
    )


def line_of(dag: DAG, entry: Path) -> int | None:
    """The line of the pipeline file on which ``dag`` is made."""
    return next((line for file, line in dag.declared_at if file == str(entry)), None)


def _replace(result: LoadResult, **changes: Any) -> LoadResult:
    import msgspec

    return msgspec.structs.replace(result, **changes)


def _module_name(relative_path: str) -> str:
    parts = list(Path(relative_path).with_suffix("").parts)
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _refuse_reserved(relative_path: str) -> None:
    path = Path(relative_path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ImportError(f"{relative_path!r} is no path below the pipelines folder")
    top = path.parts[0].removesuffix(".py")
    if top in RESERVED:
        raise ImportError(
            f"a file or folder called {top!r} in the pipelines folder would hide Tidegate's own; rename it"
        )


def _forget_modules(root: Path) -> None:
    for name in [*loaded_modules(root), *_namespaces(root)]:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def _namespaces(root: Path) -> list[str]:
    """Packages without ``__init__.py`` that have a folder below ``root``."""
    return [
        name
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None) is None
        and any(is_below(root, str(folder)) for folder in getattr(module, "__path__", ()))
    ]


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles from source each time: without the file's times, byte code is neither read nor written."""

    def path_stats(self, path: Any) -> Any:
        raise OSError


def _prepare_imports(loaded: LoadedFile) -> None:
    root = str(loaded.root)
    build = importlib.machinery.FileFinder.path_hook(
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_SourceLoader, importlib.machinery.SOURCE_SUFFIXES),
    )

    def hook(path: str) -> Any:
        if path != root and not is_below(loaded.root, path):
            raise ImportError
        return build(path)

    sys.path_hooks.insert(0, hook)
    loaded._undo.append(lambda: sys.path_hooks.remove(hook))
    for folder in dict.fromkeys((str((loaded.root / loaded.file).parent), root)):
        if folder not in sys.path:
            sys.path.append(folder)
            loaded._undo.append(lambda entry=folder: sys.path.remove(entry))  # type: ignore[misc]
    for path in [path for path in sys.path_importer_cache if path == root or is_below(loaded.root, path)]:
        del sys.path_importer_cache[path]
    loaded._undo.append(compatibility.install())


def _import_entry(loaded: LoadedFile) -> ModuleType:
    path = loaded.root / loaded.file
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {loaded.file!r} in the pipelines folder")
    refuse_oversize(path)
    name = loaded.module_name
    if _is_taken(name.partition(".")[0], loaded):
        name = loaded.module_name = f"{ASIDE}.{name}"
    parent_name, _, child = name.rpartition(".")
    parent = None if not parent_name or parent_name.startswith(ASIDE) else importlib.import_module(parent_name)
    is_package = path.name == "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name,
        path,
        loader=_SourceLoader(name, str(path)),
        submodule_search_locations=[str(path.parent)] if is_package else None,
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    if parent is not None:
        setattr(parent, child, module)
    return module


def _is_taken(top: str, loaded: LoadedFile) -> bool:
    """Whether ``top`` names a module of the installation. Folders without ``__init__.py`` elsewhere do not count."""
    if top in sys.stdlib_module_names:
        return True
    if top in sys.modules:
        file = getattr(sys.modules[top], "__file__", None)
        return file is not None and not is_below(loaded.root, file)
    own = {str(loaded.root), str((loaded.root / loaded.file).parent)}
    try:
        spec = importlib.machinery.PathFinder.find_spec(top, [entry for entry in sys.path if entry not in own])
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _own_dags(loaded: LoadedFile, made: list[DAG], module: ModuleType) -> dict[str, DAG]:
    entry = loaded.root / loaded.file
    own: dict[str, DAG] = {}
    for dag in made:
        outermost = dag.declared_at[-1][0] if dag.declared_at else ""
        if outermost != str(entry) and is_below(loaded.root, outermost):
            if any(value is dag for value in vars(module).values()):
                where = Path(outermost).relative_to(loaded.root)
                loaded.warnings = (*loaded.warnings, f"DAG {dag.dag_id!r} is made in {where} and belongs to that file")
            continue
        if dag.dag_id in own:
            first, second = line_of(own[dag.dag_id], entry), line_of(dag, entry)
            said = f"two DAGs of this file are called {dag.dag_id!r} (lines {first} and {second})"
            raise DuplicateDagId(said, line=second)
        own[dag.dag_id] = dag
    return own


def _own_warnings(caught: list[warnings.WarningMessage], root: Path) -> list[str]:
    """Messages of the warnings that the folder's code caused, each once."""
    texts: dict[str, None] = {}
    for warning in caught:
        if is_below(root, warning.filename):
            texts[f"{Path(warning.filename).relative_to(root)}:{warning.lineno}: {warning.message}"] = None
    return list(texts)
