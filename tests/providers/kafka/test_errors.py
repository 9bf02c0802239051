"""Every error of the client is mapped once."""

from __future__ import annotations

import asyncio
import inspect
import ssl

import pytest
from aiokafka import errors as kafka

from providers.kafka.errors import MISCONFIGURED, UNAVAILABLE, translate, translated
from watchers.errors import SourceError, SourceMisconfigured, SourceUnavailable

VENDOR_ERRORS = {
    value
    for _, value in inspect.getmembers(kafka, inspect.isclass)
    if issubclass(value, Exception) and value.__module__.startswith("aiokafka")
}


def test_every_error_of_the_client_is_mapped_exactly_once() -> None:
    assert MISCONFIGURED.isdisjoint(UNAVAILABLE)
    assert set() == VENDOR_ERRORS - MISCONFIGURED - UNAVAILABLE
    assert set() == (MISCONFIGURED | UNAVAILABLE) - VENDOR_ERRORS


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (kafka.SaslAuthenticationFailed("bad password"), SourceMisconfigured),
        (kafka.TopicAuthorizationFailedError("orders"), SourceMisconfigured),
        (kafka.KafkaConnectionError("gone"), SourceUnavailable),
        (kafka.NotLeaderForPartitionError("orders/0"), SourceUnavailable),
        (ConnectionResetError("reset"), SourceUnavailable),
        (TimeoutError(), SourceUnavailable),
        (ssl.SSLCertVerificationError("self-signed"), SourceMisconfigured),
        (type("LaterError", (kafka.KafkaError,), {})("new"), SourceUnavailable),
    ],
)
def test_translation_keeps_kind_cause_and_place(error: Exception, expected: type[SourceError]) -> None:
    with pytest.raises(SourceError) as caught, translated("fetching"):
        raise error
    assert type(caught.value) is expected
    assert caught.value.__cause__ is error
    assert str(caught.value).startswith(f"fetching: {type(error).__name__}")
    assert str(translate(error, doing="fetching")) == str(caught.value)


async def test_a_cancellation_from_inside_the_client_is_no_cancellation_of_ours() -> None:
    with pytest.raises(SourceUnavailable), translated("fetching"):
        raise asyncio.CancelledError


async def test_a_cancellation_of_ours_passes() -> None:
    async def wait() -> None:
        with translated("fetching"):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
