"""Fan-out: which watchers of a trigger get a payload. Filters first, then schemas; both are data, compiled once.

What a filter or a schema does to one payload may take long (an author's pattern). Whoever applies them does so where
that harms nobody: in a runner under its watchdog, or in a child with a time limit.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jmespath
import jmespath.exceptions
import msgspec

from app.domain.deliveries import Refusal

if TYPE_CHECKING:
    from watchers.schemas import PayloadSchema

#: Longest reason of a refusal, in characters.
LONGEST_REASON = 2_000


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher of a trigger; ``when`` (JMESPath) None lets everything through. ``schema`` is a place in
    :attr:`Watchers.schemas`, None accepts everything."""

    id: int
    when: str | None = None
    schema: int | None = None


class Watchers(msgspec.Struct, frozen=True, kw_only=True):
    """The watchers of a trigger, each schema (canonical JSON text) once."""

    each: tuple[Watch, ...] = ()
    schemas: tuple[str, ...] = ()

    @classmethod
    def of(cls, watchers: Iterable[tuple[int, str | None, str | None]]) -> Watchers:
        """Watchers as (id, ``when``, text of the schema)."""
        places: dict[str, int] = {}
        each = tuple(
            Watch(id=id_, when=when, schema=None if schema is None else places.setdefault(schema, len(places)))
            for id_, when, schema in watchers
        )
        return cls(each=each, schemas=tuple(places))

    @property
    def is_plain(self) -> bool:
        """Whether every payload goes to all of them."""
        return all(each.when is None and each.schema is None for each in self.each)


@dataclass(slots=True, kw_only=True)
class _Gate:
    """Watchers of one filter and one schema."""

    when: str | None
    schema: int | None
    watchers: list[int] = field(default_factory=list)


def load_libraries() -> None:
    """Import what :class:`FanOut` needs for schemas; takes a quarter of a second the first time."""
    importlib.import_module("watchers.schemas")


class FanOut:
    """The watchers of one trigger, ready for payloads."""

    def __init__(self, watchers: Watchers, *, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._plain = tuple(each.id for each in watchers.each if each.when is None and each.schema is None)
        gates: dict[tuple[str | None, int | None], _Gate] = {}
        for each in watchers.each:
            if each.when is not None or each.schema is not None:
                gate = gates.setdefault((each.when, each.schema), _Gate(when=each.when, schema=each.schema))
                gate.watchers.append(each.id)
        self._gates = tuple(gates.values())
        expressions = dict.fromkeys(gate.when for gate in self._gates if gate.when is not None)
        self._filters = {text: _compiled(text) for text in expressions}
        self._schemas = [_ready(text) for text in watchers.schemas]

    def passing(self, text: str) -> tuple[tuple[int, ...], tuple[Refusal, ...]]:
        """The watchers that get the payload (JSON text), and why others do not; the rest have filtered it out."""
        if not self._gates:
            return self._plain, ()
        value = json.loads(text)
        passing = list(self._plain)
        refusals: list[Refusal] = []
        filtered: dict[str, bool | str] = {}
        accepted: dict[int, str | None] = {}
        for gate in self._gates:
            if gate.when is not None:
                if gate.when not in filtered:
                    filtered[gate.when] = _matches(self._filters[gate.when], value)
                found = filtered[gate.when]
                if isinstance(found, str):
                    refusals.append(self._refused(gate, code="filter", reason=f"when={gate.when!r} failed: {found}"))
                    continue
                if not found:
                    continue
            if gate.schema is not None:
                if gate.schema not in accepted:
                    accepted[gate.schema] = self._schemas[gate.schema].refusal(value)
                if (why := accepted[gate.schema]) is not None:
                    refusals.append(self._refused(gate, code="schema", reason=why))
                    continue
            passing += gate.watchers
        return tuple(passing), tuple(refusals)

    def _refused(self, gate: _Gate, *, code: str, reason: str) -> Refusal:
        shown = self._mask(reason.encode("utf-8", "backslashreplace").decode())[:LONGEST_REASON]
        return Refusal(code=code, reason=shown, watchers=tuple(gate.watchers))


def _compiled(expression: str) -> Any:
    try:
        return jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as error:
        return error


def _matches(compiled: Any, value: Any) -> bool | str:
    """Whether the filter lets ``value`` pass (not false in JMESPath's sense; all numbers are true), or its fault."""
    try:
        if isinstance(compiled, Exception):
            raise compiled
        found = compiled.search(value)
    except Exception as error:  # noqa: BLE001 - an author's filter: that watcher gets a dead letter, others an event
        return f"{type(error).__name__}: {error}"
    return found is not None and found is not False and found not in ("", [], {})


def _ready(text: str) -> PayloadSchema:
    from watchers.schemas import PayloadSchema  # only where a watcher has a schema

    return PayloadSchema(text)
