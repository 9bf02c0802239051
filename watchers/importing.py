"""Classes by their import path: how a trigger crosses from one process to another."""

from __future__ import annotations

import importlib
from typing import Any

from watchers.errors import WatcherDeclarationError


def import_class(path: str) -> type[Any]:
    """Return the class at ``path`` (``package.module.Class`` or ``package.module.Outer.Inner``).

    Raises :class:`WatcherDeclarationError` if the path cannot name a class that another process finds, there is no
    such module or attribute, or it is no class. What the import of an existing module raises is the cause of that
    error as well.
    """
    parts = path.split(".")
    if "<locals>" in path or "<lambda>" in path:
        raise WatcherDeclarationError(f"{path!r}: a class made inside a function cannot be found by another process")
    if len(parts) < 2 or not all(parts):  # the module of a pipeline file is named after it: 01-orders
        raise WatcherDeclarationError(f"{path!r} is not the import path of a class (package.module.Class)")
    if parts[0] == "__main__":
        raise WatcherDeclarationError(f"{path!r}: __main__ is another module in another process; import the class")
    found, names = _deepest_module(parts, path=path)
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError:
            raise WatcherDeclarationError(f"{path!r}: {_name_of(found)} has no {name!r}") from None
    if not isinstance(found, type):
        raise WatcherDeclarationError(f"{path!r} is no class")
    return found


def path_of(kind: type[Any]) -> str:
    """The import path of a class, whether or not it can be imported by it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _deepest_module(parts: list[str], *, path: str) -> tuple[Any, list[str]]:
    """The module of the longest prefix that is one, and the names left over (at least one)."""
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        try:
            return importlib.import_module(name), parts[length:]
        except ModuleNotFoundError as error:
            # Another module that is missing is a fault inside this one, not a sign that this one is a class.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise WatcherDeclarationError(f"{path!r}: import of {name} fails: {error}") from error
        except Exception as error:
            raise WatcherDeclarationError(f"{path!r}: import of {name} fails: {_shown(error)}") from error
    raise WatcherDeclarationError(f"{path!r}: there is no module {parts[0]!r}")


def _name_of(found: Any) -> str:
    return str(getattr(found, "__qualname__", None) or getattr(found, "__name__", "it"))


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
