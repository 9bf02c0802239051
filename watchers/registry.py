"""Which message queue providers there are.

Providers are found through the entry-point group ``tidegate.providers``; the name of an entry point is its scheme.
They are loaded when first asked for. One that cannot be loaded harms nobody but the queues it would have served.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from watchers.errors import AmbiguousQueue, ProviderUnavailable, UnknownQueue
from watchers.masking import redact_uri
from watchers.provider import BaseMessageQueueProvider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "tidegate.providers"

#: Used when Tidegate runs from a source tree, without metadata of its own distribution. Names only: nothing on this
#: floor imports a provider.
_BUILT_IN = {
    "kafka": "providers.kafka:KafkaProvider",
    "memory": "providers.memory:MemoryProvider",
    "sqs": "providers.sqs:SqsProvider",
}
_DISTRIBUTION = "tidegate"
_OUR_PACKAGES = ("app", "providers", "watchers")

_log = logging.getLogger("tidegate.providers")


@dataclass(slots=True)
class _Registry:
    """Loaded providers by entry-point name, those that failed to load, and those registered by code."""

    loaded: dict[str, BaseMessageQueueProvider] = field(default_factory=dict)
    broken: dict[str, ProviderUnavailable] = field(default_factory=dict)
    registered: list[BaseMessageQueueProvider] = field(default_factory=list)
    is_read: bool = False

    def providers(self) -> list[BaseMessageQueueProvider]:
        if not self.is_read:
            for entry in _entry_points():
                self._load(entry)
            self.is_read = True
        return [*self.loaded.values(), *self.registered]

    def _load(self, entry: EntryPoint) -> None:
        try:
            provider = _instance(entry.load())
        except Exception as error:  # noqa: BLE001 — third-party code: whatever it raises must not take the others with it
            self.broken[entry.name] = _unavailable(entry, error)
            _log.debug("provider %s cannot be loaded", entry.name, exc_info=True, extra={"action": "provider.broken"})
        else:
            self.loaded[entry.name] = provider


_registry = _Registry()


def find_provider(*, queue: str | None = None, scheme: str | None = None) -> BaseMessageQueueProvider:
    """Return the one provider that serves ``queue`` (or ``scheme``).

    Raises :class:`UnknownQueue`, :class:`AmbiguousQueue` or :class:`ProviderUnavailable`. A password in ``queue``
    appears in none of their texts.
    """
    providers = _registry.providers()
    matching = [provider for provider in providers if _matches(provider, queue=queue, scheme=scheme)]
    asked = f"queue {redact_uri(queue)!r}" if queue is not None else f"scheme {scheme!r}"
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(sorted(type(provider).__qualname__ for provider in matching))
        raise AmbiguousQueue(f"{asked} is claimed by more than one provider: {names}")
    wanted = scheme if queue is None else queue.partition("://")[0]
    broken = _registry.broken.get((wanted or "").lower())
    if broken is not None:
        raise broken
    known = ", ".join(known_schemes()) or "none"
    lost = "".join(f"; {error}" for error in _registry.broken.values() if queue is not None)
    raise UnknownQueue(f"no registered provider serves {asked}; schemes known: {known}{lost}")


def known_schemes() -> list[str]:
    """The schemes that can be asked for, sorted."""
    return sorted({provider.scheme for provider in _registry.providers()})


def unavailable_providers() -> dict[str, str]:
    """Why each provider that could not be loaded could not be, by entry-point name."""
    _registry.providers()
    return {name: str(error) for name, error in sorted(_registry.broken.items())}


def register_provider(provider: type[BaseMessageQueueProvider] | BaseMessageQueueProvider) -> None:
    """Add ``provider`` (a class or an instance) for the life of this process."""
    _registry.registered.append(_instance(provider))


@contextmanager
def provider_registered(
    provider: type[BaseMessageQueueProvider] | BaseMessageQueueProvider,
) -> Iterator[BaseMessageQueueProvider]:
    """Have ``provider`` registered inside a ``with`` block: for tests."""
    instance = _instance(provider)
    registered = _registry.registered
    registered.append(instance)
    try:
        yield instance
    finally:
        registered.remove(instance)


def _instance(provider: object) -> BaseMessageQueueProvider:
    instance = provider() if isinstance(provider, type) else provider
    if not isinstance(instance, BaseMessageQueueProvider):
        raise TypeError(f"{type(instance).__name__} is not a BaseMessageQueueProvider")
    if not instance.scheme:
        raise TypeError(f"{type(instance).__name__} has no scheme")
    return instance


def _matches(provider: BaseMessageQueueProvider, *, queue: str | None, scheme: str | None) -> bool:
    try:
        if queue is not None:
            return bool(provider.queue_matches(queue))
        return bool(provider.scheme_matches(scheme or ""))
    except Exception:  # noqa: BLE001 — a broken third-party provider must not break the others
        _log.warning(
            "provider %s fails to say what it serves",
            type(provider).__qualname__,
            exc_info=True,
            extra={"action": "provider.match_failed"},
        )
        return False


def _entry_points() -> list[EntryPoint]:
    """Sorted by name; an entry point that several distributions on the path repeat is one."""
    import importlib.metadata  # slow to import, and only declaring a queue needs it

    found = {(entry.name, entry.value): entry for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    try:
        importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        for name, value in _BUILT_IN.items():
            found.setdefault(
                (name, value), importlib.metadata.EntryPoint(name=name, value=value, group=ENTRY_POINT_GROUP)
            )
    return [found[key] for key in sorted(found)]


def _unavailable(entry: EntryPoint, error: Exception) -> ProviderUnavailable:
    return provider_unavailable(entry.name, error, is_built_in=entry.value == _BUILT_IN.get(entry.name))


def provider_unavailable(name: str, error: Exception, *, is_built_in: bool) -> ProviderUnavailable:
    """The error to raise when the code of provider ``name`` cannot be imported, with the remedy if it is an extra."""
    cause = f"{type(error).__name__}: {error}"
    if is_built_in and isinstance(error, ImportError) and (error.name or "").partition(".")[0] not in _OUR_PACKAGES:
        remedy = f"install what it needs with: pip install 'tidegate[{name}]'"
        result = ProviderUnavailable(f"provider {name!r} is not installed ({cause}); {remedy}")
    else:
        result = ProviderUnavailable(f"provider {name!r} cannot be loaded ({cause})")
    result.__cause__ = error
    return result
