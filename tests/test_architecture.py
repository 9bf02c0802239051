"""The shape of the code: floors, faces, who may import a vendor, and size budgets."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("app", "watchers", "providers")
FILE_LINES = 400
FUNCTION_LINES = 40
FUNCTION_LINES_LIMIT = 60

# Where user code runs.
CHILD_MODULE = re.compile(
    r"app\.processes\.(fan_out_child|dag_processor\.loader_child|triggerer\.runner_child\w*|executor\.(warm_parent|attempt_child)\w*)"
)

# Who alone may import a library, as dotted prefixes of ours.
VENDORS: dict[str, tuple[str, ...]] = {
    "sqlalchemy": ("app.store",),
    "asyncpg": ("app.store",),
    "alembic": ("app.store",),
    "aiokafka": ("providers.kafka",),
    "aioboto3": ("providers.sqs",),
    "aiobotocore": ("providers.sqs",),
    "boto3": ("providers.sqs",),
    "botocore": ("providers.sqs",),
    "fastapi": ("app.interfaces", "app.main"),
    "starlette": ("app.interfaces", "app.main"),
    "uvicorn": ("app.interfaces", "app.main"),
    "typer": ("app.interfaces", "app.main"),
    "rich": ("app.interfaces", "app.main"),
    "providers": ("app.main", "providers"),
}


def product_files() -> list[Path]:
    return sorted(path for package in PRODUCT for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def vendor_trespasses(module: str, tree: ast.AST) -> list[str]:
    """Imports in `module` of a library that belongs to another module."""
    found = []
    for name in imported_names(tree):
        owners = VENDORS.get(name.partition(".")[0])
        if owners and not any(module == owner or module.startswith(f"{owner}.") for owner in owners):
            found.append(f"{module} imports {name}, which only {', '.join(owners)} may")
    return found


def long_functions(path: Path, tree: ast.AST) -> list[tuple[int, str]]:
    """(lines, place) of every function over the budget, its docstring not counted."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            first = node.body[0]
            documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            prose = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
            lines = last - node.lineno + 1 - prose
            if lines > FUNCTION_LINES:
                found.append((lines, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"))
    return found


def test_floors_hold() -> None:
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    assert linter, "import-linter is not installed: run `make install`"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_top_package_is_empty() -> None:
    assert (ROOT / "app" / "__init__.py").read_text().strip() == ""


def test_a_trespass_is_seen() -> None:
    assert vendor_trespasses("providers.mqtt", ast.parse("def f():\n    import aiokafka.errors"))
    assert not vendor_trespasses("providers.kafka.source", ast.parse("from aiokafka import AIOKafkaConsumer"))


@pytest.mark.parametrize("path", product_files(), ids=module_name)
def test_file(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert len(text.splitlines()) <= FILE_LINES, f"{path.relative_to(ROOT)} has more than {FILE_LINES} lines"
    assert not vendor_trespasses(module_name(path), tree)


def test_children_that_run_user_code_reach_no_database() -> None:
    """The modules that docs/architecture.md names as children import neither store nor use-cases, however far."""
    graph = grimp.build_graph("app", "watchers", include_external_packages=True, cache_dir=None)
    children = [module for module in graph.modules if CHILD_MODULE.fullmatch(module)]
    for child in children:
        for hidden in ("app.store", "app.services", "sqlalchemy", "asyncpg"):
            if hidden in graph.modules:
                chain = graph.find_shortest_chain(child, hidden, as_packages=True)
                assert chain is None, " -> ".join(chain or ())


def test_function_sizes() -> None:
    """Prints what is over the budget (`pytest -rP` shows it); fails above the limit."""
    offenders = [found for path in product_files() for found in long_functions(path, ast.parse(path.read_text()))]
    sys.stdout.writelines(f"over {FUNCTION_LINES} lines: {place}\n" for _, place in sorted(offenders, reverse=True))
    assert not [place for lines, place in offenders if lines > FUNCTION_LINES_LIMIT]
