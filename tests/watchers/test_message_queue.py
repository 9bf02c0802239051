from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from watchers import registry
from watchers.errors import AmbiguousQueue, ProviderUnavailable, UnknownQueue, WatcherDeclarationError
from watchers.message_queue import BaseMessageQueueProvider, MessageQueueTrigger
from watchers.triggers import BaseEventTrigger, TriggerEvent
from watchers.watcher import AssetWatcher


class ParrotTrigger(BaseEventTrigger):
    def __init__(self, *, perch: str, volume: int = 1) -> None:
        self.perch = perch
        self.volume = volume
        self.cleaned = False

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.watchers.test_message_queue.ParrotTrigger", {"perch": self.perch, "volume": self.volume}

    def default_source(self) -> str:
        return f"parrot:{self.perch}"

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent({"perch": self.perch, "id": self.trigger_id})

    async def cleanup(self) -> None:
        self.cleaned = True


class ParrotProvider(BaseMessageQueueProvider):
    scheme = "parrot"

    def trigger_class(self) -> type[BaseEventTrigger]:
        return ParrotTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        return {"perch": queue.rpartition("/")[2]}


class OtherParrotProvider(ParrotProvider):
    def queue_matches(self, queue: str) -> bool:
        return queue.startswith("parrot://")


class BrokenProvider(ParrotProvider):
    scheme = "broken"

    def queue_matches(self, queue: str) -> bool:
        raise RuntimeError("bug")


class MissingClientProvider(ParrotProvider):
    scheme = "missing"

    def trigger_class(self) -> type[BaseEventTrigger]:
        raise ModuleNotFoundError("No module named 'client'")


class PlainProvider(ParrotProvider):
    scheme = "plain"

    def trigger_class(self) -> Any:
        return dict


class TellTaleProvider(ParrotProvider):
    scheme = "telltale"

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        raise ValueError(f"cannot read {queue} with {kwargs}")


class Nameless(ParrotProvider):
    scheme = ""


@pytest.fixture(autouse=True)
def only_our_providers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(registry, "_registry", registry._Registry(is_read=True))
    with registry.provider_registered(ParrotProvider):
        yield


async def test_a_queue_becomes_the_providers_trigger() -> None:
    trigger = MessageQueueTrigger(queue="parrot://zoo/left", volume=3)
    assert trigger.serialize() == ParrotTrigger(perch="left", volume=3).serialize()
    assert trigger.default_source() == "parrot:left"
    trigger.trigger_id = 7
    assert [event async for event in trigger.run()] == [TriggerEvent({"perch": "left", "id": 7})]
    await trigger.cleanup()
    assert isinstance(trigger.trigger, ParrotTrigger)
    assert trigger.trigger.cleaned
    assert AssetWatcher("w", trigger).trigger is trigger


def test_a_scheme_takes_the_triggers_own_arguments() -> None:
    trigger = MessageQueueTrigger(scheme="Parrot", perch="left", trigger_queue="private")
    assert trigger.serialize() == ParrotTrigger(perch="left").serialize()
    assert trigger.trigger_queue == "private"


@pytest.mark.parametrize("arguments", [{}, {"queue": "parrot://a", "scheme": "parrot"}])
def test_exactly_one_of_queue_and_scheme(arguments: dict[str, str]) -> None:
    with pytest.raises(WatcherDeclarationError, match=r"exactly one of queue= and scheme=.*known: parrot"):
        MessageQueueTrigger(**arguments)


@pytest.mark.parametrize("arguments", [{"queue": " "}, {"scheme": ""}, {"queue": 3}])
def test_blank_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(WatcherDeclarationError, match="not blank"):
        MessageQueueTrigger(**arguments)


def test_an_unknown_queue_lists_the_schemes_and_hides_the_password() -> None:
    with pytest.raises(UnknownQueue, match="schemes known: parrot") as caught:
        MessageQueueTrigger(queue="owl://user:pa:ss@wo@host/q")
    assert "owl://user:***@host/q" in str(caught.value)
    with pytest.raises(UnknownQueue, match="scheme 'owl'"):
        MessageQueueTrigger(scheme="owl")


def test_two_claims_are_ambiguous() -> None:
    with registry.provider_registered(OtherParrotProvider), pytest.raises(AmbiguousQueue) as caught:
        MessageQueueTrigger(queue="parrot://zoo/left")
    assert "OtherParrotProvider, ParrotProvider" in str(caught.value)
    MessageQueueTrigger(queue="parrot://zoo/left")


def test_arguments_that_do_not_suit_are_a_declaration_error() -> None:
    with pytest.raises(WatcherDeclarationError, match="colour"):
        MessageQueueTrigger(queue="parrot://zoo/left", colour="red")


def test_what_a_provider_raises_shows_no_secret() -> None:
    with registry.provider_registered(TellTaleProvider), pytest.raises(WatcherDeclarationError) as caught:
        MessageQueueTrigger(queue="telltale://me:hunter2@host/q", token="swordfish")
    assert "telltale://me:***@host/q" in str(caught.value)
    assert "swordfish" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_broken_provider_harms_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    with registry.provider_registered(BrokenProvider):
        assert MessageQueueTrigger(queue="parrot://zoo/left").scheme is None
    assert "BrokenProvider" in caplog.text


def test_a_missing_client_and_a_wrong_class_are_named() -> None:
    with registry.provider_registered(MissingClientProvider), pytest.raises(ProviderUnavailable, match="'missing'"):
        MessageQueueTrigger(scheme="missing")
    with registry.provider_registered(PlainProvider), pytest.raises(WatcherDeclarationError, match="PlainProvider"):
        MessageQueueTrigger(scheme="plain")
    with pytest.raises(TypeError, match="no scheme"):
        registry.register_provider(Nameless)


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=registry.ENTRY_POINT_GROUP)


def test_entry_points_are_read_and_failures_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        entry("kafka", "providers.kafka:NoSuchProvider"),
        entry("parrot", f"{__name__}:ParrotProvider"),
        entry("third", "no_such_package_of_a_third_party:Provider"),
        entry("wrong", "builtins:dict"),
    ]
    monkeypatch.setattr(registry, "_registry", registry._Registry())
    monkeypatch.setattr(registry, "_entry_points", lambda: entries)
    monkeypatch.setitem(registry._BUILT_IN, "kafka", "no_such_package_kafka:KafkaProvider")
    entries[0] = entry("kafka", "no_such_package_kafka:KafkaProvider")
    assert registry.known_schemes() == ["parrot"]
    assert sorted(registry.unavailable_providers()) == ["kafka", "third", "wrong"]
    with pytest.raises(ProviderUnavailable, match=r"pip install 'tidegate\[kafka\]'"):
        MessageQueueTrigger(queue="kafka://host/topic")
    with pytest.raises(ProviderUnavailable, match="no_such_package_of_a_third_party"):
        MessageQueueTrigger(scheme="third")
    assert MessageQueueTrigger(scheme="parrot", perch="x").serialize()[1]["perch"] == "x"


def test_built_in_providers_are_known_without_an_installed_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert {"kafka", "memory", "sqs"} <= {each.name for each in registry._entry_points()}
