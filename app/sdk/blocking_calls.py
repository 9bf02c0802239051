"""Calls in triggers that would stop the event loop, found in the text of a file; nothing is imported or run.

Looked at is what runs on the loop: ``run`` and ``cleanup`` of trigger classes, and the methods and functions of the
same file that these call. What is only passed to ``asyncio.to_thread`` and its like runs elsewhere. A comment
``# tidegate: allow-blocking`` on a line of the call says that the author knows.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.kernel.errors import TidegateError
from app.sdk.blocking_names import FUNCTIONS, Definition, Names, last_name, walk
from app.sdk.blocking_rules import CALLS, CLOCKS, MAKERS, ON_THE_LOOP, REMEDIES, TELLING_METHODS, Code

_ALLOWED = re.compile(r"#\s*tidegate:\s*allow-blocking\b")
#: Methods of a trigger that its runner awaits.
_ENTRIES = ("run", "cleanup")
_WAITING = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)


class Unreadable(TidegateError):
    """The text of a file cannot be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BlockingCall:
    """A finding. ``line`` and ``column`` count from 1; ``trigger`` is the class on whose behalf the code runs."""

    line: int
    column: int
    code: Code
    message: str
    trigger: str


def check_file(path: Path) -> list[BlockingCall]:
    """The findings in a file. Raises :class:`Unreadable`."""
    try:
        return check_source(path.read_bytes())
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def blocking_calls_of(root: Path, files: Iterable[str]) -> tuple[str, ...]:
    """The findings in files below ``root``, a text each; files whose text cannot be looked at are passed over."""
    said: list[str] = []
    for file in files:
        try:
            found = check_file(root / file)
        except Unreadable:
            continue
        said += (f"{file}:{each.line}: {each.code} {each.message}" for each in found)
    return tuple(said)


def check_source(source: bytes) -> list[BlockingCall]:
    """The findings in the text of a module, in its order. Raises :class:`Unreadable`."""
    if b"Trigger" not in source and b"yield" not in source:
        _parsed(source)
        return []
    try:
        names = Names(_parsed(source))
        found = _Search(names, allowed=_allowed_lines(source)).findings()
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    return sorted(found)


def _parsed(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno or 0}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(str(error) or type(error).__name__) from error


def _allowed_lines(source: bytes) -> frozenset[int]:
    if b"allow-blocking" not in source:
        return frozenset()
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    return frozenset(each.start[0] for each in tokens if each.type == tokenize.COMMENT and _ALLOWED.search(each.string))


class _Search:
    """Follows calls from the entries of each trigger class."""

    def __init__(self, names: Names, *, allowed: frozenset[int]) -> None:
        self._names = names
        self._allowed = allowed
        self._found: dict[tuple[int, int, Code], BlockingCall] = {}
        self._seen: set[str] = set()
        self._pending: list[tuple[Definition, str]] = []

    def findings(self) -> list[BlockingCall]:
        for class_name in self._names.classes:
            if self._is_trigger(class_name):
                for entry in _ENTRIES:
                    self._reach(self._names.method(class_name, entry), class_name)
        while self._pending:
            self._look_at(*self._pending.pop(0))
        return list(self._found.values())

    def _is_trigger(self, class_name: str) -> bool:
        """By the name of what it inherits from, or because its ``run`` is an async generator."""
        if any(not name.startswith(":") and name.endswith("Trigger") for name in self._names.lineage(class_name)):
            return True
        run = self._names.method(class_name, "run")
        if run is None or not isinstance(run.node, ast.AsyncFunctionDef):
            return False
        return any(isinstance(node, ast.Yield) for node in walk(run.node.body))

    def _reach(self, definition: Definition | None, trigger: str) -> None:
        if definition is not None and definition.name not in self._seen:
            self._seen.add(definition.name)
            self._pending.append((definition, trigger))

    # ------------------------------------------------------------------------------------------- in one function

    def _look_at(self, definition: Definition, trigger: str) -> None:
        for node in walk(definition.node.body):
            match node:
                case ast.Call():
                    self._look_at_call(node, definition, trigger)
                case ast.While():
                    self._look_at_loop(node, definition, trigger)
                case ast.For(iter=over) | ast.comprehension(iter=over, is_async=0):
                    value = self._names.value(over, definition.scope) or ""
                    family = MAKERS.get(value.removesuffix("()"))
                    if family is not None and family.iterates and value.endswith("()"):
                        what = f"a loop over {value.removesuffix('()')}"
                        self._report(over, family.code, what, definition=definition, trigger=trigger)
                case ast.Attribute():
                    self._follow(self._names.value(node, definition.scope), trigger, only_properties=True)

    def _look_at_call(self, node: ast.Call, definition: Definition, trigger: str) -> None:
        called = self._names.value(node.func, definition.scope)
        if last_name(node.func) in ON_THE_LOOP:
            for given in node.args:
                self._follow(self._names.value(given, definition.scope), trigger)
        self._follow(called, trigger)
        if (blocking := self._blocking(node, called, definition)) is not None:
            code, what = blocking
            self._report(node, code, what, definition=definition, trigger=trigger)

    def _follow(self, value: str | None, trigger: str, *, only_properties: bool = False) -> None:
        if value is None or not value.startswith(":"):
            return
        definition = self._names.functions.get(value)
        if definition is not None and (not only_properties or _is_property(definition)):
            self._reach(definition, trigger)
        elif value in self._names.classes and not only_properties:
            for method in ("__init__", "__aenter__", "__enter__"):
                self._reach(self._names.method(value, method), trigger)

    def _blocking(self, node: ast.Call, called: str | None, definition: Definition) -> tuple[Code, str] | None:
        """Why the call blocks and how it is shown."""
        if called in CALLS:
            return CALLS[called], f"{called}()"
        if called in MAKERS and MAKERS[called].makes:
            return MAKERS[called].code, f"{called}(), a synchronous client,"
        return self._blocking_method(node, definition) if isinstance(node.func, ast.Attribute) else None

    def _blocking_method(self, node: ast.Call, definition: Definition) -> tuple[Code, str] | None:
        assert isinstance(node.func, ast.Attribute)
        method = node.func.attr
        holder = self._names.value(node.func.value, definition.scope)
        family = MAKERS.get(holder.removesuffix("()")) if holder is not None and holder.endswith("()") else None
        if family is not None and holder is not None:
            return (family.code, f"{method}() of {holder.removesuffix('()')}") if family.blocks(method) else None
        if self._is_awaited(node, definition):
            return None
        if method in TELLING_METHODS:
            return TELLING_METHODS[method], f".{method}()"
        if method == "result" and (node.args or any(each.arg == "timeout" for each in node.keywords)):
            return Code.WAIT, ".result() with a timeout"
        return (Code.WAIT, ".run_until_complete()") if method == "run_until_complete" else None

    def _is_awaited(self, node: ast.Call, definition: Definition) -> bool:
        return any(isinstance(each, ast.Await) and each.value is node for each in walk(definition.node.body))

    def _look_at_loop(self, node: ast.While, definition: Definition, trigger: str) -> None:
        inside = list(walk(node.body))
        if any(isinstance(each, _WAITING) for each in (*inside, *walk([node.test]))) or self._asks_elsewhere(inside):
            return
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        is_empty = all(isinstance(each, (ast.Pass, ast.Continue)) for each in node.body)
        reads_clock = any(
            isinstance(each, ast.Call) and self._names.value(each.func, definition.scope) in CLOCKS
            for each in (*inside, *walk([node.test]))
        )
        if (is_endless and not _leaves(node)) or is_empty or reads_clock:
            self._report(node, Code.BUSY, "a loop that never awaits", definition=definition, trigger=trigger)

    @staticmethod
    def _asks_elsewhere(inside: Sequence[ast.AST]) -> bool:
        """An async comprehension awaits too."""
        return any(isinstance(each, ast.comprehension) and each.is_async for each in inside)

    def _report(
        self, node: ast.expr | ast.stmt, code: Code, what: str, *, definition: Definition, trigger: str
    ) -> None:
        last = node.lineno if isinstance(node, ast.While) else node.end_lineno or node.lineno
        if not self._allowed.isdisjoint(range(node.lineno, last + 1)):
            return
        place = f"{trigger.lstrip(':')}.run"
        where = definition.name.lstrip(":")
        reached = "" if where == place else f", reached from {trigger.lstrip(':')}"
        finding = BlockingCall(
            line=node.lineno,
            column=node.col_offset + 1,
            code=code,
            message=f"{what} blocks the event loop in {where}(){reached}: {REMEDIES[code]}",
            trigger=trigger.lstrip(":"),
        )
        self._found.setdefault((finding.line, finding.column, finding.code), finding)


def _is_property(definition: Definition) -> bool:
    return any(last_name(each) in ("property", "cached_property") for each in definition.node.decorator_list)


def _leaves(loop: ast.While) -> bool:
    """Whether a loop has a way out: return, raise, or a break of its own."""
    return any(_ways_out(loop.body))


def _ways_out(body: Sequence[ast.AST]) -> Iterator[bool]:
    for node in body:
        if isinstance(node, (ast.Return, ast.Raise, ast.Break)):
            yield True
        elif isinstance(node, (ast.While, ast.For, ast.AsyncFor)):
            # A break inside leaves that loop only.
            yield from (isinstance(each, (ast.Return, ast.Raise)) for each in walk(node.body))
            yield from _ways_out(node.orelse)
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield from _ways_out(list(ast.iter_child_nodes(node)))
