"""Fan-out: which watchers of a trigger get a payload. Filters first, then schemas; both are data, compiled once.

What a filter or a schema does to one payload may take long (an author's pattern). Whoever applies them does so where
that harms nobody: in a runner under its watchdog, or in a child with a time limit.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jmespath
import jmespath.exceptions
import msgspec

from app.domain.deliveries import Refusal

if TYPE_CHECKING:
    from watchers.schemas import PayloadSchema

#: Filters and schemas applied without a pause.
_JUDGED_AT_ONCE = 100
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
    """Watchers of one filter and one schema (its text)."""

    when: str | None
    schema: str | None
    watchers: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Judgement:
    """What filters and schemas say of one payload, each asked once."""

    value: Any
    filtered: dict[str, bool | str] = field(default_factory=dict)
    accepted: dict[str, str | None] = field(default_factory=dict)


def load_libraries() -> None:
    """Import what :class:`FanOut` needs for schemas; takes a quarter of a second the first time."""
    importlib.import_module("watchers.schemas")


class FanOut:
    """The watchers of one trigger, ready for payloads."""

    def __init__(self, watchers: Watchers, *, mask: Callable[[str], str] = str, known: FanOut | None = None) -> None:
        """``known`` has filters and schemas of before; those that stay are not compiled again."""
        self._mask = mask
        self._plain = tuple(each.id for each in watchers.each if each.when is None and each.schema is None)
        gates: dict[tuple[str | None, int | None], _Gate] = {}
        for each in watchers.each:
            if each.when is not None or each.schema is not None:
                schema = None if each.schema is None else watchers.schemas[each.schema]
                gate = gates.setdefault((each.when, each.schema), _Gate(when=each.when, schema=schema))
                gate.watchers.append(each.id)
        self._gates = tuple(gates.values())
        # Compiled when first needed: thousands of them at once would hold up everybody else's loop.
        self._filters: dict[str, Any] = {}
        self._schemas: dict[str, PayloadSchema] = {}
        if known is not None:
            expressions, texts = {gate.when for gate in self._gates}, {gate.schema for gate in self._gates}
            self._filters = {text: ready for text, ready in known._filters.items() if text in expressions}
            self._schemas = {text: ready for text, ready in known._schemas.items() if text in texts}

    def passing(self, text: str) -> tuple[tuple[int, ...], tuple[Refusal, ...]]:
        """The watchers that get the payload (JSON text), and why others do not; the rest have filtered it out."""
        judging = self.judging(text)
        while True:
            try:
                next(judging)
            except StopIteration as end:
                found: tuple[tuple[int, ...], tuple[Refusal, ...]] = end.value
                return found

    def judging(self, text: str) -> Generator[None, None, tuple[tuple[int, ...], tuple[Refusal, ...]]]:
        """:meth:`passing` with a pause after every hundred filters and schemas, for what else its caller has to do."""
        if not self._gates:
            return self._plain, ()
        judgement = _Judgement(value=json.loads(text))
        passing = list(self._plain)
        refusals: list[Refusal] = []
        for number, gate in enumerate(self._gates, 1):
            if number % _JUDGED_AT_ONCE == 0:
                yield
            found = self._judge(gate, judgement)
            if isinstance(found, Refusal):
                refusals.append(found)
            elif found:
                passing += gate.watchers
        return tuple(passing), tuple(refusals)

    def _judge(self, gate: _Gate, judgement: _Judgement) -> bool | Refusal:
        if gate.when is not None:
            if gate.when not in judgement.filtered:
                judgement.filtered[gate.when] = _matches(self._filter(gate.when), judgement.value)
            found = judgement.filtered[gate.when]
            if isinstance(found, str):
                return self._refused(gate, code="filter", reason=f"when={gate.when!r} failed: {found}")
            if not found:
                return False
        if gate.schema is not None:
            if gate.schema not in judgement.accepted:
                judgement.accepted[gate.schema] = self._schema(gate.schema).refusal(judgement.value)
            if (why := judgement.accepted[gate.schema]) is not None:
                return self._refused(gate, code="schema", reason=why)
        return True

    def _filter(self, expression: str) -> Any:
        if expression not in self._filters:
            self._filters[expression] = _compiled(expression)
        return self._filters[expression]

    def _schema(self, text: str) -> PayloadSchema:
        if text not in self._schemas:
            self._schemas[text] = _ready(text)
        return self._schemas[text]

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
