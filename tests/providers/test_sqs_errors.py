"""Every error of the vendor's client has a mapping."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from botocore import exceptions as vendor
from botocore.session import get_session

from providers.sqs.errors import CLIENT_ERRORS, CODES, CredentialsRefused, QueueMissing, mapped, receipt_is_gone
from watchers.errors import SourceError, SourceMisconfigured, SourceUnavailable

#: Errors of other services and of parts of the client that no request to SQS goes through.
ELSEWHERE = {
    "AliasConflictParameterError",
    "AwsChunkedWrapperError",
    "BotoCoreError",
    "ClientError",
    "EventStreamError",
    "InfiniteLoopConfigError",
    "InvalidChecksumConfigError",
    "InvalidEndpointDiscoveryConfigurationError",
    "InvalidS3AddressingStyleError",
    "InvalidS3UsEast1RegionalEndpointConfigError",
    "OperationNotPageableError",
    "PaginationError",
    "UnseekableStreamError",
    "UnsupportedOutpostResourceError",
    "UnsupportedS3AccesspointConfigurationError",
    "UnsupportedS3ArnError",
    "UnsupportedS3ConfigurationError",
    "UnsupportedS3ControlArnError",
    "UnsupportedS3ControlConfigurationError",
    "WaiterConfigError",
    "WaiterError",
}


def vendor_classes() -> Iterator[type[Exception]]:
    for name, found in inspect.getmembers(vendor, inspect.isclass):
        if "Stub" in name or name in ELSEWHERE or issubclass(found, Warning):
            continue
        if issubclass(found, Exception):
            yield found


@pytest.mark.parametrize("error_class", list(vendor_classes()), ids=lambda found: found.__name__)
def test_every_client_error_is_mapped(error_class: type[Exception]) -> None:
    assert any(parent in CLIENT_ERRORS for parent in error_class.__mro__)


def service_codes() -> set[str]:
    model = get_session().get_service_model("sqs")
    codes = {shape.name for shape in model.error_shapes}
    return codes | {str(shape.metadata.get("error", {}).get("code", shape.name)) for shape in model.error_shapes}


def test_every_code_of_the_service_is_mapped() -> None:
    unmapped = {code for code in service_codes() if code.rpartition(".")[2] not in CODES}
    assert unmapped == set()


def answer(code: str, *, status: int = 400, message: str = "m") -> vendor.ClientError:
    return vendor.ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "ReceiveMessage",
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answer("ExpiredToken", status=403), CredentialsRefused),
        (answer("AWS.SimpleQueueService.NonExistentQueue"), QueueMissing),
        (answer("com.amazonaws.sqs#QueueDoesNotExist"), QueueMissing),
        (answer("AccessDenied", status=403), SourceMisconfigured),
        (answer("SomethingNew", status=403), CredentialsRefused),
        (answer("SomethingNew", status=503), SourceUnavailable),
        (answer("", status=500), SourceUnavailable),
        (answer("SomethingNew", status=429), SourceUnavailable),
        (answer("SomethingNew", status=400), SourceMisconfigured),
        (vendor.NoCredentialsError(), CredentialsRefused),
        (vendor.NoRegionError(), SourceMisconfigured),
        (vendor.EndpointConnectionError(endpoint_url="http://h/", error="refused"), SourceUnavailable),
        (TimeoutError(), SourceUnavailable),
    ],
    ids=repr,
)
def test_mapping(error: Exception, expected: type[SourceError]) -> None:
    result = mapped(error, action="receive from orders")
    assert type(result) is expected
    assert str(result).startswith("receive from orders: ")


def test_an_error_of_ours_is_not_mapped() -> None:
    assert mapped(ZeroDivisionError(), action="x") is None


def test_a_user_in_a_url_is_not_shown() -> None:
    error = vendor.EndpointConnectionError(endpoint_url="http://user:hunter2@host/", error="refused")
    assert "hunter2" not in str(mapped(error, action="x"))


def test_void_receipts() -> None:
    assert receipt_is_gone("ReceiptHandleIsInvalid", "")
    assert receipt_is_gone("AWS.SimpleQueueService.MessageNotInflight", "")
    expired = "Value X for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    assert receipt_is_gone("InvalidParameterValue", expired)
    assert not receipt_is_gone("InternalError", "try again")
