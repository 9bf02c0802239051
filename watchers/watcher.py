"""An asset watcher: a name and the event trigger that makes events of the asset it is attached to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watchers.errors import WatcherDeclarationError
from watchers.triggers import BaseEventTrigger


@dataclass(frozen=True, slots=True)
class AssetWatcher:
    """Attach ``trigger`` to an asset under ``name``.

    ``when`` is a JMESPath expression over the payload; an event whose result is false (in JMESPath's sense: null,
    false, or empty) makes no event of this asset. ``schema`` is a JSON Schema (see ``watchers.schemas``); a payload
    that passes the filter and breaks the schema becomes a dead letter of this asset. Equal triggers of several watchers
    share one poller whatever their names, filters and schemas.

    Raises :class:`WatcherDeclarationError` if the name is blank, the trigger is not a :class:`BaseEventTrigger`, the
    expression does not compile, or the schema breaks the rules of JSON Schema or refers to what is not in it.
    """

    name: str
    trigger: BaseEventTrigger
    when: str | None = field(default=None, kw_only=True)
    schema: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise WatcherDeclarationError("an asset watcher needs a name that is not blank")
        if not isinstance(self.trigger, BaseEventTrigger):
            raise WatcherDeclarationError(
                f"watcher {self.name!r}: {type(self.trigger).__name__} is not a BaseEventTrigger. A plain trigger is "
                "written to resume one waiting task; attached to an asset it would report the same condition for ever."
            )
        if self.when is not None:
            compile_filter(self.when, watcher=self.name)
        if self.schema is not None:
            # A copy: what was checked stays as it is.
            object.__setattr__(self, "schema", json.loads(checked_schema(self.schema, watcher=self.name)))


def compile_filter(expression: str, *, watcher: str) -> Any:
    """Compile the JMESPath ``expression``; raises :class:`WatcherDeclarationError` naming the watcher."""
    import jmespath  # only pipeline files with a filter need it
    import jmespath.exceptions

    try:
        return jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as error:
        raise WatcherDeclarationError(f"watcher {watcher!r}: when={expression!r} is not JMESPath: {error}") from error


def checked_schema(schema: object, *, watcher: str) -> str:
    """The canonical text of a JSON Schema; raises :class:`WatcherDeclarationError` naming the watcher."""
    from watchers.schemas import schema_text  # takes a quarter of a second; only files with a schema need it

    return schema_text(schema, watcher=watcher)
