"""How queues are written, and which spellings are one queue."""

from __future__ import annotations

import pytest

from providers.sqs import SqsProvider
from providers.sqs.address import canonical_url, read_address
from providers.sqs.trigger import SqsTrigger
from watchers.errors import WatcherDeclarationError
from watchers.message_queue import MessageQueueTrigger
from watchers.registry import find_provider

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"


@pytest.mark.parametrize(
    ("queue", "name", "url", "region", "origin"),
    [
        ("orders", "orders", None, None, None),
        ("sqs://orders", "orders", None, None, None),
        ("sqs://orders.fifo", "orders.fifo", None, None, None),
        (URL, "orders", URL, "eu-west-1", None),
        (f"{URL}/", "orders", URL, "eu-west-1", None),
        ("https://eu-west-1.queue.amazonaws.com/123456789012/orders", "orders", URL, "eu-west-1", None),
        ("https://sqs-fips.eu-west-1.amazonaws.com/123456789012/orders", "orders", URL, "eu-west-1", None),
        (
            "https://sqs.cn-north-1.amazonaws.com.cn/1/a.fifo",
            "a.fifo",
            "https://sqs.cn-north-1.amazonaws.com.cn/1/a.fifo",
            "cn-north-1",
            None,
        ),
        (
            "http://localhost:4566/000000000000/q",
            "q",
            "http://localhost:4566/000000000000/q",
            None,
            "http://localhost:4566",
        ),
    ],
)
def test_read(queue: str, name: str, url: str | None, region: str | None, origin: str | None) -> None:
    address = read_address(queue)
    assert (address.name, address.url, address.region, address.origin) == (name, url, region, origin)


@pytest.mark.parametrize("queue", ["", "sqs://", "sqs://a/b", "a b", "x" * 81, "http://u:hunter2@h/1/q", "kafka://h/t"])
def test_refused(queue: str) -> None:
    with pytest.raises(WatcherDeclarationError) as refused:
        SqsTrigger(queue)
    assert "hunter2" not in str(refused.value)


def test_canonical_url_is_its_own() -> None:
    assert canonical_url(canonical_url(URL)) == URL


@pytest.mark.parametrize("queue", ["sqs://orders", URL, "https://sqs.cn-north-1.amazonaws.com.cn/1/a.fifo"])
def test_the_provider_is_found_and_makes_the_trigger(queue: str) -> None:
    assert isinstance(find_provider(queue=queue), SqsProvider)
    path, arguments = MessageQueueTrigger(queue=queue, max_messages=3).serialize()
    assert path == "providers.sqs.trigger.SqsTrigger"
    assert arguments["sqs_queue"] == queue
    assert arguments["max_messages"] == 3


def test_scheme_form_with_the_fields_word_for_the_connection() -> None:
    trigger = MessageQueueTrigger(scheme="sqs", sqs_queue="orders", aws_conn_id="aws_default")
    assert trigger.serialize()[1]["connection_id"] == "aws_default"


@pytest.mark.parametrize(
    "options",
    [
        {"max_messages": 11},
        {"max_messages": 0},
        {"max_messages": True},
        {"receivers": 0},
        {"wait_time_seconds": 21},
        {"visibility_timeout": 0},
        {"region_name": "us-east-1"},
        {"endpoint_url": "http://user:hunter2@host"},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(WatcherDeclarationError) as refused:
        SqsTrigger(URL, **options)  # type: ignore[arg-type]
    assert "hunter2" not in str(refused.value)
