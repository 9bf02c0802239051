"""What the names of a module stand for, as far as its text tells; nothing is imported.

A *value* is a text: the dotted name of something imported (``time.sleep``), or, with ``()`` at the end, an object made
by calling that (``redis.Redis()``). Classes and functions of the module itself begin with ``:`` (``:Feed``,
``:Feed.run``). Names are looked at without regard to the order in which they are bound.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.sdk.blocking_rules import ELSEWHERE, MAKERS

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_TRANSPARENT = frozenset({"sorted", "list", "tuple", "reversed", "iter", "next", "enumerate"})


@dataclass(slots=True, kw_only=True)
class Scope:
    """Names bound in a module or function; ``None`` is a name of which nothing is known."""

    parent: Scope | None = None
    #: Name of the class whose method this is, and of the first argument.
    owner: str | None = None
    values: dict[str, str | None] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """The value of ``name`` here; builtins stand for themselves."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return name if hasattr(builtins, name) else None

    def bind(self, name: str, value: str | None) -> None:
        """Bind; what is known of a name is not forgotten for what is not."""
        if value is not None or name not in self.values:
            self.values[name] = value


@dataclass(slots=True, kw_only=True)
class Definition:
    """A function or method with the scope of its body."""

    node: Function
    name: str
    scope: Scope
    owner: str | None


class Names:
    """The definitions of a module, and values of its expressions."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: dict[str, Definition] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.bases: dict[str, list[str]] = {}
        self._attributes: dict[str, dict[str, str | None]] = {}
        self.module = Scope()
        self._define(tree.body, self.module, prefix=":", owner=None)
        # Twice: what a method gives to an attribute may be known only after another one was read.
        for _ in range(2):
            self._bind(tree.body, self.module)
            for definition in self.functions.values():
                self._bind_arguments(definition)
                self._bind(definition.node.body, definition.scope)

    # ------------------------------------------------------------------------------------------------- definitions

    def _define(self, body: Sequence[ast.stmt], scope: Scope, *, prefix: str, owner: str | None) -> None:
        """Register what is defined in ``body``; names of a class body are not names of its methods."""
        for node in walk(body):
            if isinstance(node, FUNCTIONS):
                name = f"{prefix}{node.name}"
                inner = Scope(parent=scope, owner=owner)
                self.functions[name] = Definition(node=node, name=name, scope=inner, owner=owner)
                if owner is None:
                    scope.bind(node.name, name)
                self._define(node.body, inner, prefix=f"{name}.", owner=None)
            elif isinstance(node, ast.ClassDef):
                name = f"{prefix}{node.name}"
                self.classes[name] = node
                self._attributes[name] = {}
                scope.bind(node.name, name)
                self.bases[name] = [value for base in node.bases if (value := self.value(base, scope)) is not None]
                self._define(node.body, scope, prefix=f"{name}.", owner=name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                _bind_import(node, scope)

    def lineage(self, class_name: str) -> Iterator[str]:
        """The class and what it inherits from, each once; ``:`` begins those of this module."""
        pending, seen = [class_name], set()
        while pending:
            name = pending.pop(0)
            if name not in seen:
                seen.add(name)
                yield name
                pending += self.bases.get(name, [])

    def method(self, class_name: str, name: str) -> Definition | None:
        """The method of a class of this module, inherited ones included."""
        for each in self.lineage(class_name):
            if (found := self.functions.get(f"{each}.{name}")) is not None:
                return found
        return None

    # ---------------------------------------------------------------------------------------------------- bindings

    def _bind_arguments(self, definition: Definition) -> None:
        arguments = definition.node.args
        ordered = [*arguments.posonlyargs, *arguments.args]
        for each in (*ordered, *arguments.kwonlyargs):
            definition.scope.bind(each.arg, self._annotated(each.annotation, definition.scope))
        if definition.owner is not None and ordered and not _is_static(definition.node):
            definition.scope.values[ordered[0].arg] = f"{definition.owner}()"

    def _bind(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for node in walk(body):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._give(target, self.value(value, scope), scope)
                case ast.AnnAssign(target=target, annotation=annotation, value=given):
                    found = self._annotated(annotation, scope) or (self.value(given, scope) if given else None)
                    self._give(target, found, scope)
                case ast.NamedExpr(target=target, value=value):
                    self._give(target, self.value(value, scope), scope)
                case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                    self._give(target, self.value(value, scope), scope)
                case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                    self._give(target, self._member(value, scope), scope)
                case ast.ClassDef():
                    self._bind_class_body(node, scope)

    def _bind_class_body(self, node: ast.ClassDef, scope: Scope) -> None:
        name = next((key for key, value in self.classes.items() if value is node), None)
        inner = Scope(parent=scope)
        for each in node.body:
            if isinstance(each, (ast.Assign, ast.AnnAssign)):
                self._bind([each], inner)
        if name is not None:
            for key, value in inner.values.items():
                self._set_attribute(name, key, value)

    def _give(self, target: ast.expr, value: str | None, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.bind(name, value)
            case ast.Attribute(value=holder, attr=name):
                owner = self.value(holder, scope)
                if owner is not None and owner.startswith(":") and owner.endswith("()"):
                    self._set_attribute(owner[:-2], name, value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._give(part, None, scope)

    def _set_attribute(self, class_name: str, name: str, value: str | None) -> None:
        attributes = self._attributes[class_name]
        if value is not None or name not in attributes:
            attributes[name] = value

    # ------------------------------------------------------------------------------------------------------ values

    def value(self, node: ast.expr, scope: Scope) -> str | None:
        """What an expression stands for, if the text tells."""
        found: str | None = None
        match node:
            case ast.Name(id=name):
                found = scope.find(name)
            case ast.Attribute(value=holder, attr=name):
                found = self._attribute(self.value(holder, scope), name)
            case ast.Call():
                found = self._made(node, scope)
            case ast.Subscript(value=holder):
                found = _object(self.value(holder, scope))
            case ast.BinOp(left=left, op=ast.Div()):
                found = self.value(left, scope)
                found = found if found == "pathlib.Path()" else None
            case ast.IfExp(body=one, orelse=other):
                found = self.value(one, scope) or self.value(other, scope)
            case ast.BoolOp(values=values):
                found = next((each for part in values if (each := self.value(part, scope)) is not None), None)
            case ast.NamedExpr(value=value):
                found = self.value(value, scope)
        return found

    def _attribute(self, holder: str | None, name: str) -> str | None:
        if holder is None:
            return None
        if holder in self.classes:
            found = self.method(holder, name)
            return None if found is None else found.name
        if not holder.startswith(":"):
            return holder if holder.endswith("()") else f"{holder}.{name}"
        for each in self.lineage(holder[:-2]):
            if name in self._attributes.get(each, {}):
                return self._attributes[each][name]
            if f"{each}.{name}" in self.functions:
                return f"{each}.{name}"
        return None

    def _made(self, node: ast.Call, scope: Scope) -> str | None:
        match node.func:
            case ast.Name(id="super"):
                base = next((each for each in self.bases.get(_owner_of(scope), []) if each in self.classes), None)
                return None if base is None else f"{base}()"
            case ast.Name(id=name) if name in _TRANSPARENT and len(node.args) == 1:
                return self._member(node.args[0], scope)
            case ast.Attribute(attr="submit"):
                return "concurrent.futures.Future()"
            case ast.Attribute(value=holder, attr=name) if (found := _object(self.value(holder, scope))) is not None:
                if not found.startswith(":"):
                    family = MAKERS.get(found[:-2])
                    return found if family is not None and name in family.derives else None
        return self._result(self.value(node.func, scope))

    def _result(self, called: str | None) -> str | None:
        """What calling something gives."""
        if called is None or called in self.functions:
            return self._returned(called)
        if called in ("pathlib.PosixPath", "pathlib.Path.cwd", "pathlib.Path.home"):
            return "pathlib.Path()"
        return f"{called}()" if called in MAKERS or called in self.classes else None

    def _returned(self, called: str | None) -> str | None:
        """What a function of this module says it returns."""
        definition = self.functions.get(called or "")
        if definition is None or isinstance(definition.node, ast.AsyncFunctionDef):
            return None
        return self._annotated(definition.node.returns, definition.scope)

    def _member(self, node: ast.expr, scope: Scope) -> str | None:
        """What iterating over an expression gives: paths of a folder."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in _TRANSPARENT and node.args:
                return self._member(node.args[0], scope)
            if self.value(node, scope) == "pathlib.Path()":
                return "pathlib.Path()"
        return None

    def _annotated(self, annotation: ast.expr | None, scope: Scope) -> str | None:
        """An object of the class that an annotation names; ``| None`` and ``Optional`` are seen through."""
        match annotation:
            case ast.Constant(value=str(text)):
                try:
                    return self._annotated(ast.parse(text, mode="eval").body, scope)
                except SyntaxError:
                    return None
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._annotated(left, scope) or self._annotated(right, scope)
            case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
                return self._annotated(inner, scope)
            case ast.Name() | ast.Attribute():
                found = self.value(annotation, scope)
                return f"{found}()" if found is not None and (found in MAKERS or found in self.classes) else None
        return None


def walk(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Nodes in the order of the text, without the bodies of definitions, and without what runs elsewhere."""
    pending = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, _DEFINITIONS):
            continue
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call) and last_name(node.func) in ELSEWHERE:
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            children = [node.func, *(each for each in given if not isinstance(each, ast.Lambda))]
        pending.extend(reversed(children))


def last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c``; empty where there is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _bind_import(node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            scope.values[alias.asname or top] = alias.name if alias.asname else top
        return
    for alias in node.names:
        scope.values[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"


def _is_static(node: Function) -> bool:
    return any(last_name(each) == "staticmethod" for each in node.decorator_list)


def _object(value: str | None) -> str | None:
    """``value`` if it is an object that was made."""
    return value if value is not None and value.endswith("()") else None


def _owner_of(scope: Scope) -> str:
    """The class whose method's body this is; empty if it is none."""
    found: Scope | None = scope
    while found is not None and found.owner is None:
        found = found.parent
    return "" if found is None or found.owner is None else found.owner
