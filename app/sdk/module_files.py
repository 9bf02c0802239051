"""Which files of the pipelines folder belong to a pipeline file.

Those its import loaded, and those that its code names in import statements that run later, inside a task's function
say: a version of a DAG must hold them too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def loaded_modules(root: Path) -> dict[str, Path]:
    """The modules in ``sys.modules`` whose file is below ``root``, by name."""
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_below(root, file):
            found[name] = Path(file)
    return found


def is_below(root: Path, file: str) -> bool:
    """Whether ``file`` is in the folder ``root``, which is an absolute path without links."""
    return file.startswith(f"{root}/")


def files_of(root: Path, *, entry: Path) -> tuple[str, ...]:
    """Sorted paths, relative to ``root``, of ``entry`` and of all below ``root`` that it loaded or imports later."""
    pending = [entry, *(path for path in loaded_modules(root).values() if path.suffix == ".py")]
    search = [entry.parent, root]
    seen: set[Path] = set()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        pending.extend(_named_by(path, root=root, search=search))
    return tuple(sorted(str(path.relative_to(root)) for path in seen if path.is_file()))


def _named_by(path: Path, *, root: Path, search: Sequence[Path]) -> Iterator[Path]:
    """The files below ``root`` that the import statements of ``path`` name."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_for(alias.name, search)
        elif isinstance(node, ast.ImportFrom):
            folders: Sequence[Path] = search
            if node.level:
                folders = [path.parents[node.level - 1]] if len(path.parents) >= node.level else []
                folders = [folder for folder in folders if folder == root or is_below(root, str(folder))]
            names = [alias.name for alias in node.names]
            for name in [node.module, *(f"{node.module}.{name}" for name in names)] if node.module else names:
                yield from _files_for(name or "", folders)


def _files_for(dotted: str, folders: Sequence[Path]) -> Iterator[Path]:
    """The files that importing ``dotted`` from the first of ``folders`` that has it would load, packages included."""
    parts = dotted.split(".")
    for folder in folders:
        place = folder.joinpath(*parts)
        candidates = [place.with_name(f"{place.name}.py"), place / "__init__.py"]
        if any(candidate.is_file() for candidate in candidates):
            candidates += [folder.joinpath(*parts[:length]) / "__init__.py" for length in range(1, len(parts))]
            yield from (candidate for candidate in candidates if candidate.is_file())
            return
