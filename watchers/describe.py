"""A trigger as it is stored: class path, canonical keyword arguments, identity; and back to a trigger."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from watchers.encoding import MAX_KWARGS_BYTES, decode_kwargs, encode_kwargs, trigger_identity
from watchers.errors import EncodingRefused, WatcherDeclarationError
from watchers.importing import import_class, path_of
from watchers.triggers import BaseTrigger

_LONGEST_QUEUE = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerDescription:
    """What another process needs to build an equal trigger. ``kwargs_text`` may hold secrets: hence no ``repr()``.

    ``queue`` says which triggerers may run it, and is no part of the identity.
    """

    classpath: str
    kwargs_text: str
    identity: str
    queue: str | None = None
    acknowledges: bool = False

    def __repr__(self) -> str:
        return f"TriggerDescription(classpath={self.classpath!r}, identity={self.identity[:12]!r})"


def describe_trigger(trigger: BaseTrigger, *, max_bytes: int = MAX_KWARGS_BYTES) -> TriggerDescription:
    """Describe ``trigger`` from its ``serialize()``.

    Raises :class:`WatcherDeclarationError` naming the trigger's class if ``serialize()`` fails or returns something
    else than a class path and keyword arguments, if that class cannot be imported, is no trigger or does not take
    those arguments, or if its ``trigger_queue`` is no name; :class:`EncodingRefused` with the place if an argument has
    no encoding.
    """
    name = path_of(type(trigger))
    classpath, kwargs = _serialized(trigger, name=name)
    kind = _trigger_class(classpath, name=name)
    _check_arguments(kind, kwargs, name=name)
    try:
        text = encode_kwargs(kwargs, max_bytes=max_bytes)
    except EncodingRefused as error:
        place = error.path.removeprefix("kwargs").removeprefix(".")
        raise EncodingRefused(error.reason, path=f"{name}({place})" if place else name) from error
    return TriggerDescription(
        classpath=classpath,
        kwargs_text=text,
        identity=trigger_identity(classpath, text),
        queue=_queue_of(trigger, name=name),
        acknowledges=bool(getattr(kind, "acknowledges", False)),
    )


def build_trigger(classpath: str, kwargs_text: str) -> BaseTrigger:
    """Build the trigger that was described.

    Raises :class:`WatcherDeclarationError` or :class:`EncodingRefused`, and whatever the constructor raises.
    """
    trigger: BaseTrigger = _trigger_class(classpath, name=classpath)(**decode_kwargs(kwargs_text))
    return trigger


def _queue_of(trigger: BaseTrigger, *, name: str) -> str | None:
    queue: Any = trigger.trigger_queue
    if queue is not None and (
        not isinstance(queue, str) or not queue.strip() or "," in queue or len(queue) > _LONGEST_QUEUE
    ):
        raise WatcherDeclarationError(
            f"{name}: the queue of a trigger must be a text that is not blank, without commas, of at most "
            f"{_LONGEST_QUEUE} characters, not {queue!r}"
        )
    return queue


def _serialized(trigger: BaseTrigger, *, name: str) -> tuple[str, dict[str, Any]]:
    try:
        serialized: Any = trigger.serialize()
    except NotImplementedError as error:
        raise WatcherDeclarationError(f"{name} has no serialize()") from error
    except Exception as error:
        raise WatcherDeclarationError(f"{name}.serialize() raised {type(error).__name__}: {error}") from error
    well_formed = (
        isinstance(serialized, (tuple, list))
        and len(serialized) == 2
        and isinstance(serialized[0], str)
        and isinstance(serialized[1], dict)
    )
    if not well_formed:
        raise WatcherDeclarationError(f"{name}.serialize() must return (class path, dict of keyword arguments)")
    classpath, kwargs = serialized
    for key in kwargs:
        if not isinstance(key, str):
            raise WatcherDeclarationError(f"{name}.serialize(): {key!r} is no name of a keyword argument")
    return classpath, kwargs


def _trigger_class(classpath: str, *, name: str) -> type[Any]:
    kind = import_class(classpath) if classpath == name else _imported_for(classpath, name=name)
    if not issubclass(kind, BaseTrigger):
        raise WatcherDeclarationError(f"{classpath} is not a BaseTrigger")
    return kind


def _imported_for(classpath: str, *, name: str) -> type[Any]:
    try:
        return import_class(classpath)
    except WatcherDeclarationError as error:
        raise WatcherDeclarationError(f"{name}.serialize(): {error}") from error


def _check_arguments(kind: type[Any], kwargs: dict[str, Any], *, name: str) -> None:
    """Refuse now what the constructor would refuse at every start."""
    try:
        signature = inspect.signature(kind)
    except (TypeError, ValueError):  # a constructor that cannot be inspected
        return
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise WatcherDeclarationError(
            f"{name}.serialize() returns arguments that {kind.__name__} does not take: {error}"
        ) from error
