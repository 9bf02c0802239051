"""One trigger for every message queue: it finds the provider of a queue and becomes that provider's trigger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from watchers import registry
from watchers.errors import WatcherDeclarationError, WatcherError
from watchers.masking import masker_for, redact_uri
from watchers.provider import BaseMessageQueueProvider
from watchers.triggers import BaseEventTrigger, Yielded

__all__ = ["BaseMessageQueueProvider", "MessageQueueTrigger"]


class MessageQueueTrigger(BaseEventTrigger):
    """Fires for each message of a queue.

    ``queue`` is a queue's URI, of a form that one registered provider knows (``kafka://host:9092/topic``). With
    ``scheme`` instead, ``kwargs`` alone say which queue. All other ``kwargs`` go to the provider's trigger.
    ``trigger_queue`` says which triggerers may run it (``triggerer --queues``); it has nothing to do with ``queue``.

    ``serialize()`` is that of the provider's trigger, so equal queues share one poller however they were declared.

    Raises :class:`WatcherDeclarationError` if not exactly one of ``queue`` and ``scheme`` is given or an argument does
    not suit the trigger, ``UnknownQueue``, ``AmbiguousQueue`` or ``ProviderUnavailable`` if no single provider serves.
    """

    _INJECTED = ("trigger_id", "triggerer_job_id", "task_instance", "status", "log", "positions")

    def __init__(
        self, *, queue: str | None = None, scheme: str | None = None, trigger_queue: str | None = None, **kwargs: Any
    ) -> None:
        self.queue = queue
        self.scheme = scheme
        self.kwargs = kwargs
        self.trigger = _provider_trigger(queue=queue, scheme=scheme, kwargs=kwargs)
        self.trigger_queue = self.trigger.trigger_queue if trigger_queue is None else trigger_queue

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return self.trigger.serialize()

    def default_source(self) -> str | None:
        return self.trigger.default_source()

    def run(self) -> AsyncIterator[Yielded]:
        for name in self._INJECTED:
            setattr(self.trigger, name, getattr(self, name))
        return self.trigger.run()

    async def cleanup(self) -> None:
        await self.trigger.cleanup()

    async def on_kill(self) -> None:
        await self.trigger.on_kill()


def _provider_trigger(*, queue: str | None, scheme: str | None, kwargs: dict[str, Any]) -> BaseEventTrigger:
    if (queue is None) == (scheme is None):
        known = ", ".join(registry.known_schemes()) or "none"
        raise WatcherDeclarationError(
            f"MessageQueueTrigger takes exactly one of queue= and scheme=; schemes known: {known}"
        )
    for name, given in (("queue", queue), ("scheme", scheme)):
        if given is not None and (not isinstance(given, str) or not given.strip()):
            raise WatcherDeclarationError(f"MessageQueueTrigger: {name}= must be a text that is not blank")
    provider = registry.find_provider(queue=queue, scheme=scheme)
    trigger_class = _trigger_class(provider)
    try:
        arguments = kwargs if queue is None else {**kwargs, **provider.trigger_kwargs(queue, **kwargs)}
        return trigger_class(**arguments)
    except WatcherError:
        raise
    except Exception as error:  # noqa: BLE001 — third-party code: a located error of the declaration
        asked = f"scheme {scheme!r}" if queue is None else f"queue {redact_uri(queue)!r}"
        reason = f"{type(error).__name__}: {error}"
        shown = masker_for({**kwargs, "queue": queue}, {"queue"})(reason)
        # A cause whose text holds a secret would be shown with the traceback.
        raise WatcherDeclarationError(f"{asked}: {shown}") from (error if shown == reason else None)


def _trigger_class(provider: BaseMessageQueueProvider) -> type[BaseEventTrigger]:
    try:
        trigger_class = provider.trigger_class()
    except ImportError as error:
        is_built_in = type(provider).__module__.partition(".")[0] == "providers"
        raise registry.provider_unavailable(provider.scheme, error, is_built_in=is_built_in) from error
    if not (isinstance(trigger_class, type) and issubclass(trigger_class, BaseEventTrigger)):
        raise WatcherDeclarationError(
            f"provider {type(provider).__qualname__}: trigger_class() must return a subclass of BaseEventTrigger"
        )
    return trigger_class
