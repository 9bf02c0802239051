"""TLS, passwords and what is said when they are wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.kafka import KafkaTrigger
from tests.contracts.ledger import Ledger, driving, eventually
from tests.providers.kafka.support import numbered, values
from tests.services.kafka import BrokerUnavailable, apache_jars, planned_broker
from tests.services.kafka_client import KafkaClient
from tests.services.kafka_secure import PASSWORD, USER, SecureApacheKafka
from watchers.errors import SourceMisconfigured

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureApacheKafka]:
    if "Apache" not in planned_broker():
        pytest.skip("only Apache Kafka asks for TLS and passwords")
    try:
        jars = apache_jars()
    except BrokerUnavailable as error:
        pytest.skip(str(error))
    with SecureApacheKafka(Path(tempfile.mkdtemp(prefix="tidegate-kafka-")), jars=jars) as service:
        yield service


def reading(broker: SecureApacheKafka, topic: str, **options: Any) -> KafkaTrigger:
    secure = {
        "security_protocol": "SASL_SSL",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "ssl_cafile": str(broker.authority),
        "request_timeout": 5.0,
        **options,
    }
    return KafkaTrigger(topics=[topic], bootstrap_servers=[broker.secure_address], **secure)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_messages_are_read_over_tls_with_a_password(broker: SecureApacheKafka, mechanism: str) -> None:
    async with KafkaClient.connect(broker.bootstrap) as client:
        topic = await client.create_topic(partitions=2)
        await client.send(topic, numbered(4), partitions=2)
        ledger = Ledger()
        async with driving(reading(broker, topic, sasl_mechanism=mechanism), ledger) as driver:
            await ledger.wait_for_events(4)
            assert driver.status.errors == []
    assert sorted(values(ledger)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl_password": "wrong-secret"}, "SaslAuthenticationFailed"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_password": "wrong-secret"}, "SaslAuthenticationFailed"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "UnsupportedSaslMechanismError"),
        ({"ssl_cafile": None}, "SSLCertVerificationError"),
        ({"ssl_cafile": "/nowhere.pem"}, "TLS files"),
    ],
)
async def test_what_is_wrong_is_said_and_tried_again(
    broker: SecureApacheKafka, options: dict[str, Any], said: str
) -> None:
    async with driving(reading(broker, "any", **options), Ledger()) as driver:
        await eventually(lambda: driver.status.consecutive >= 2)
    for error in driver.status.errors:
        assert isinstance(error, SourceMisconfigured)
        assert said in str(error)
        assert "secret" not in str(error)
        assert PASSWORD not in str(error)


async def test_a_password_put_right_in_the_connection_is_taken_up(
    broker: SecureApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configure(password: str) -> None:
        options = f"security_protocol=SASL_SSL&ssl_cafile={broker.authority}"
        uri = f"kafka://{USER}:{password}@{broker.secure_address}/?{options}"
        monkeypatch.setenv("TIDEGATE_CONN_SECURE_KAFKA", uri)

    async with KafkaClient.connect(broker.bootstrap) as client:
        topic = await client.create_topic()
        await client.send(topic, numbered(2))
        ledger = Ledger()
        configure("wrong")
        async with driving(KafkaTrigger(topics=[topic], connection_id="secure_kafka"), ledger) as driver:
            await eventually(lambda: driver.status.consecutive >= 1)
            configure(PASSWORD)
            await ledger.wait_for_events(2)
            await eventually(lambda: driver.status.consecutive == 0)
