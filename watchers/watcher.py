"""An asset watcher: a name and the event trigger that makes events of the asset it is attached to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from watchers.errors import WatcherDeclarationError
from watchers.triggers import BaseEventTrigger


@dataclass(frozen=True, slots=True)
class AssetWatcher:
    """Attach ``trigger`` to an asset under ``name``.

    ``when`` is a JMESPath expression over the payload; an event whose result is false (in JMESPath's sense: null,
    false, or empty) makes no event of this asset. Equal triggers of several watchers share one poller whatever their
    names and filters.

    Raises :class:`WatcherDeclarationError` if the name is blank, the trigger is not a :class:`BaseEventTrigger`, or
    the expression does not compile.
    """

    name: str
    trigger: BaseEventTrigger
    when: str | None = field(default=None, kw_only=True)

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


def compile_filter(expression: str, *, watcher: str) -> Any:
    """Compile the JMESPath ``expression``; raises :class:`WatcherDeclarationError` naming the watcher."""
    import jmespath  # only pipeline files with a filter need it
    import jmespath.exceptions

    try:
        return jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as error:
        raise WatcherDeclarationError(f"watcher {watcher!r}: when={expression!r} is not JMESPath: {error}") from error
