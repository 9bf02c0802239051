"""What a Kafka trigger accepts, and what identifies it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from providers.kafka import KafkaProvider, KafkaTrigger
from providers.kafka.settings import KafkaSettings, parse_queue, with_connection
from watchers.connections import Connection
from watchers.errors import WatcherDeclarationError


def test_a_queue_names_brokers_and_topics() -> None:
    assert parse_queue("kafka://one:9092,two:9093/orders,refunds") == {
        "bootstrap_servers": ["one:9092", "two:9093"],
        "topics": ["orders", "refunds"],
    }
    assert parse_queue("KAFKA:///orders") == {"bootstrap_servers": [], "topics": ["orders"]}


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ("kafka://user:hunter2@host:9092/orders", "connection_id"),
        ("kafka://host/orders?group_id=x", "keyword arguments"),
        ("kafka://host/orders/more", "not a list of topics"),
        ("sqs://orders", "not a Kafka queue"),
    ],
)
def test_a_malformed_queue_is_refused_without_showing_a_password(queue: str, reason: str) -> None:
    with pytest.raises(WatcherDeclarationError, match=reason) as caught:
        parse_queue(queue)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"topics": ()},
        {"topics": ["a/b"]},
        {"topics": [".."]},
        {"topics": [7]},
        {"bootstrap_servers": ()},
        {"bootstrap_servers": ["host:port"]},
        {"bootstrap_servers": ["user@host"]},
        {"security_protocol": "TLS"},
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
        {"auto_offset_reset": "none"},
        {"group_id": " "},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"request_timeout": 0},
        {"metadata_refresh": 31},
    ],
)
def test_options_that_cannot_work_are_refused_at_declaration(options: dict[str, Any]) -> None:
    with pytest.raises(WatcherDeclarationError, match="kafka:"):
        KafkaTrigger(**{"topics": ["orders"], "bootstrap_servers": ["host"], **options})


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="batchsize"):
        KafkaTrigger(topics=["orders"], bootstrap_servers=["host"], batchsize=3)


def test_equal_triggers_are_equal_however_they_are_written() -> None:
    one = KafkaTrigger(topics=["b", "a", "a"], bootstrap_servers=["two:9092", "ONE"], batch_size=500)
    two = KafkaTrigger(topics="a,b", bootstrap_servers="one:9092,two")
    assert one.serialize() == two.serialize()
    path, kwargs = one.serialize()
    assert path == "providers.kafka.trigger.KafkaTrigger"
    assert kwargs == {"topics": ["a", "b"], "bootstrap_servers": ["one:9092", "two:9092"]}
    assert KafkaTrigger(**kwargs).serialize() == one.serialize()


def test_secrets_are_no_public_kwargs() -> None:
    assert KafkaProvider.secret_kwargs.isdisjoint(KafkaTrigger.public_kwargs)
    fields = set(KafkaSettings.__dataclass_fields__)
    assert fields - KafkaTrigger.public_kwargs == KafkaProvider.secret_kwargs


def test_no_password_is_shown() -> None:
    settings = KafkaSettings(
        topics=("orders",),
        bootstrap_servers=("host",),
        security_protocol="SASL_SSL",
        sasl_username="me",
        sasl_password="hunter2",
        ssl_password="hunter3",
    )
    assert "hunter" not in repr(settings)


def test_a_connection_adds_what_the_trigger_does_not_say() -> None:
    settings = KafkaSettings(topics=("orders",), connection_id="events", batch_size=7)
    uri = "kafka://me:s%40cret@one,two:9093/?security.protocol=SASL_SSL&sasl.mechanism=SCRAM-SHA-512&batch_size=9"
    completed = with_connection(settings, Connection.from_uri("events", uri.replace("one,two", "one%2Ctwo")))
    assert completed.bootstrap_servers == ("one:9093", "two:9093")
    assert (completed.sasl_username, completed.sasl_password) == ("me", "s@cret")
    assert (completed.security_protocol, completed.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert completed.batch_size == 7


@pytest.mark.parametrize("extra", [{"colour": "blue"}, {"batch_size": "many"}, {"topics": "other"}])
def test_a_connection_with_options_that_cannot_work_is_refused(extra: dict[str, Any]) -> None:
    settings = KafkaSettings(topics=("orders",), connection_id="events")
    connection = Connection(conn_id="events", host="host", extra=extra)
    with pytest.raises(WatcherDeclarationError):
        with_connection(settings, connection)


def test_a_connection_without_a_broker_is_refused() -> None:
    with pytest.raises(WatcherDeclarationError, match="no broker"):
        with_connection(KafkaSettings(topics=("orders",), connection_id="x"), Connection(conn_id="x"))


def test_the_provider_leads_to_the_trigger() -> None:
    provider = KafkaProvider()
    assert provider.queue_matches("kafka://host/orders")
    assert provider.scheme_matches("kafka")
    assert not provider.queue_matches("kafkaesque://host/orders")
    trigger = provider.trigger_class()(**provider.trigger_kwargs("kafka://host/orders"))
    assert trigger.serialize()[1]["topics"] == ["orders"]


def test_declaring_does_not_import_the_client() -> None:
    code = (
        "import sys; from providers.kafka import KafkaProvider as P; p = P();"
        "p.trigger_class()(**p.trigger_kwargs('kafka://h/t')); assert 'aiokafka' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
