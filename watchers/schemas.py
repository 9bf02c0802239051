"""Payload schemas: JSON Schema as data, checked when a watcher is declared and applied to each payload at fan-out.

The dialect is the one that ``$schema`` names, else draft 2020-12. ``format`` is an annotation, as that draft has it:
what it would check depends on the libraries of an installation. Nothing is ever fetched: a ``$ref`` leads to a place in
the schema itself, or to the meta-schema of a dialect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import exceptions, validators
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import EMPTY_REGISTRY, specification_with

from watchers.errors import EncodingRefused, WatcherDeclarationError
from watchers.locations import Location
from watchers.payloads import encode_payload

#: Largest schema, in bytes of its JSON text.
MAX_SCHEMA_BYTES = 65_536
#: Values shown of the rule that a payload breaks, in characters.
_SHOWN = 80
_LONGEST_REASON = 1_000
_KNOWN: Registry[Any] = EMPTY_REGISTRY.combine(REGISTRY)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DEFAULT = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS: dict[str, Any] = {
    _DEFAULT: validators.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": validators.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": validators.Draft7Validator,
    "http://json-schema.org/draft-06/schema": validators.Draft6Validator,
    "http://json-schema.org/draft-04/schema": validators.Draft4Validator,
}


def schema_text(schema: object, *, watcher: str) -> str:
    """The canonical JSON text of ``schema``, checked; equal schemas have equal texts.

    Raises :class:`WatcherDeclarationError` naming the watcher: it is no JSON object, too large, of a dialect nobody
    knows, against the rules of its dialect, or refers to what is not in it.
    """
    try:
        plain = _plain(schema)
        kind = _kind(plain)
        kind.check_schema(plain)
        _check_references(plain, kind)
        validator = _validator(plain)
        samples: tuple[Any, ...] = (None, True, 0, "", [], {})
        for value in samples:
            next(validator.iter_errors(value), None)
    except _SchemaRefused as refused:
        raise WatcherDeclarationError(f"watcher {watcher!r}: schema: {refused}") from None
    except exceptions.SchemaError as error:
        raise WatcherDeclarationError(f"watcher {watcher!r}: schema: {_fault(error)}") from None
    except RecursionError:
        reason = "it refers to itself without end, or is nested too deep"
        raise WatcherDeclarationError(f"watcher {watcher!r}: schema: {reason}") from None
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


class PayloadSchema:
    """A schema ready for use. ``text`` is what :func:`schema_text` gave."""

    __slots__ = ("_validator",)

    def __init__(self, text: str) -> None:
        self._validator = _validator(json.loads(text))

    def refusal(self, value: Any) -> str | None:
        """Why the payload ``value`` (of JSON's own types) is refused: the place in it and the rule. None: accepted.

        Names places and rules, never contents. May take as long as a pattern of the schema takes.
        """
        try:
            error = next(self._validator.iter_errors(value), None)
        except RecursionError:
            return "payload: nested too deep for its schema"
        except Exception as failure:  # noqa: BLE001 - a number beyond what a rule can compare, say; told as a refusal
            return f"payload: its schema cannot be applied to it: {type(failure).__name__}"
        return None if error is None else _broken(error)[:_LONGEST_REASON]


class _SchemaRefused(Exception):
    """What is wrong with a schema."""


def _plain(schema: object) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _SchemaRefused(f"it must be a JSON Schema as a dict, not a {type(schema).__name__}")
    try:
        text = encode_payload(dict(schema), max_bytes=MAX_SCHEMA_BYTES)
    except EncodingRefused as error:
        place = error.path.replace("payload", "schema", 1)
        raise _SchemaRefused(f"{place}: {error.reason}") from None
    plain: dict[str, Any] = json.loads(text)
    return plain


def _kind(plain: Mapping[str, Any]) -> Any:
    """The validator class of the schema's dialect."""
    dialect = plain.get("$schema", _DEFAULT)
    kind = _DIALECTS.get(dialect.rstrip("#")) if isinstance(dialect, str) else None
    if kind is None:
        known = ", ".join(_DIALECTS)
        raise _SchemaRefused(f"$schema {_short(dialect)} is no dialect of JSON Schema known here; known: {known}")
    return kind


def _validator(plain: Mapping[str, Any]) -> Validator:
    validator: Validator = _kind(plain)(plain, registry=_KNOWN)
    return validator


def _check_references(plain: dict[str, Any], kind: Any) -> None:
    """Every reference of every schema within leads to a schema that is here."""
    dialect = specification_with(kind.ID_OF(kind.META_SCHEMA))
    root: Resource[Any] = dialect.create_resource(plain)
    pending = [(root, _KNOWN.resolver_with_root(root))]
    seen: set[int] = set()
    while pending:
        resource, resolver = pending.pop()
        contents = resource.contents
        if id(contents) in seen:
            continue
        seen.add(id(contents))
        for word in _REFERENCES if isinstance(contents, dict) else ():
            target = contents.get(word)
            if not isinstance(target, str):
                continue
            try:
                found = resolver.lookup(target)
            except Unresolvable:
                raise _SchemaRefused(_dangling(word, target)) from None
            if id(found.contents) not in seen:
                kind.check_schema(found.contents)
                if not isinstance(found.contents, (dict, bool)):
                    raise _SchemaRefused(f"{word} {_short(target)} leads to no schema")
                pending.append((dialect.create_resource(found.contents), found.resolver))
        pending += [(each, resolver.in_subresource(each)) for each in resource.subresources()]


def _dangling(word: str, target: str) -> str:
    if target.startswith("#"):
        return f"{word} {_short(target)} leads nowhere in this schema"
    return f"{word} {_short(target)} is not in this schema; nothing is fetched, so put it below $defs"


def _fault(error: exceptions.SchemaError) -> str:
    place = Location.root("schema")
    for step in error.absolute_path:
        place = place.member(step)
    return f"{place}: {_short(error.instance)} breaks {_rule(error)} of its dialect"[:_LONGEST_REASON]


def _broken(error: exceptions.ValidationError) -> str:
    place = Location.root("payload")
    for step in error.absolute_path:
        place = place.member(step)
    where = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in error.absolute_schema_path)
    rule: Any = error.validator_value
    if error.validator == "required" and isinstance(error.instance, dict):
        lacking = [name for name in rule if name not in error.instance]
        return f"{place}: lacks {', '.join(_short(name) for name in lacking[:5])} (schema {where[:200]})"
    return f"{place}: breaks {_rule(error)} (schema {where[:200] or '/'})"


def _rule(error: exceptions.ValidationError | exceptions.SchemaError) -> str:
    """The rule as its schema has it. A schema of ``false`` has no words."""
    return f"{error.validator}: {_short(error.validator_value)}" if isinstance(error.validator, str) else "false"


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
