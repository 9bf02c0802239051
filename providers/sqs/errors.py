"""Every error of the vendor's client, mapped once.

==============================  ====================================================================================
becomes                         what it is
==============================  ====================================================================================
:class:`SourceUnavailable`      connection, time-out, throttling, a failure of the service
:class:`CredentialsRefused`     credentials are missing, expired or not accepted; a new client reads them anew
:class:`QueueMissing`           the queue does not exist (yet)
:class:`SourceMisconfigured`    refused for another reason that waiting does not heal
==============================  ====================================================================================

All are retried, because each has been seen to heal: a role is granted, a queue is created, a clock is set. The class
says what to show.
"""

from __future__ import annotations

import json
import re

import aiohttp
from botocore import exceptions as vendor
from botocore.parsers import ResponseParserError

from watchers.errors import SourceError, SourceMisconfigured, SourceUnavailable, WatcherError


class CredentialsRefused(SourceUnavailable):
    """No credentials, or none that the service accepts now."""


class QueueMissing(SourceMisconfigured):
    """The queue does not exist."""


#: Codes of answers, without the prefix that the service's older protocol gives some of them.
CODES: dict[str, type[SourceError]] = {
    **dict.fromkeys(
        [
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidSecurity",
            "InvalidSignatureException",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "NotAuthorized",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
            "UnrecognizedClientException",
        ],
        CredentialsRefused,
    ),
    **dict.fromkeys(
        ["NonExistentQueue", "QueueDoesNotExist", "QueueDeletedRecently", "ResourceNotFoundException"], QueueMissing
    ),
    **dict.fromkeys(
        [
            "InternalError",
            "InternalFailure",
            "KmsThrottled",
            "OverLimit",
            "PurgeQueueInProgress",
            "RequestThrottled",
            "RequestTimeout",
            "RequestTimeoutException",
            "ServiceUnavailable",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
        ],
        SourceUnavailable,
    ),
    **dict.fromkeys(
        [
            "AccessDenied",
            "AccessDeniedException",
            "BatchEntryIdsNotDistinct",
            "BatchRequestTooLong",
            "EmptyBatchRequest",
            "InvalidAddress",
            "InvalidAttributeName",
            "InvalidAttributeValue",
            "InvalidBatchEntryId",
            "InvalidIdFormat",
            "InvalidMessageContents",
            "InvalidParameterValue",
            "KmsAccessDenied",
            "KmsDisabled",
            "KmsInvalidKeyUsage",
            "KmsInvalidState",
            "KmsNotFound",
            "KmsOptInRequired",
            "MessageNotInflight",
            "OptInRequired",
            "QueueNameExists",
            "ReceiptHandleIsInvalid",
            "TooManyEntriesInBatchRequest",
            "UnsupportedOperation",
        ],
        SourceMisconfigured,
    ),
}

#: Codes of one entry of a batch that say: this receipt is of no use any more.
_RECEIPT_GONE = frozenset({"ReceiptHandleIsInvalid", "MessageNotInflight"})

#: What reading an answer raises that is not the service's. Nothing else happens inside a request.
_UNREADABLE: tuple[type[Exception], ...] = (AttributeError, LookupError, TypeError)

#: The client's own errors; a class stands for its subclasses where these are not named.
CLIENT_ERRORS: dict[type[Exception], type[SourceError]] = {
    **dict.fromkeys(
        [
            vendor.CapacityNotAvailableError,
            vendor.ChecksumError,
            vendor.ConnectionError,
            vendor.FlexibleChecksumError,
            vendor.HTTPClientError,
            vendor.IncompleteReadError,
            aiohttp.ClientError,
            OSError,
            ResponseParserError,
            TimeoutError,
            json.JSONDecodeError,
        ],
        SourceUnavailable,
    ),
    **dict.fromkeys(_UNREADABLE, SourceUnavailable),
    **dict.fromkeys(
        [
            vendor.CredentialRetrievalError,
            vendor.MetadataRetrievalError,
            vendor.NoAuthTokenError,
            vendor.NoCredentialsError,
            vendor.PartialCredentialsError,
            vendor.RefreshWithMFAUnsupportedError,
            vendor.SSOError,
            vendor.TokenRetrievalError,
            vendor.UnknownCredentialError,
        ],
        CredentialsRefused,
    ),
    **dict.fromkeys(
        [
            vendor.ApiVersionNotFoundError,
            vendor.BaseEndpointResolverError,
            vendor.ConfigNotFound,
            vendor.ConfigParseError,
            vendor.DataNotFoundError,
            vendor.EndpointProviderError,
            vendor.InvalidConfigError,
            vendor.InvalidDNSNameError,
            vendor.InvalidDefaultsMode,
            vendor.InvalidEndpointConfigurationError,
            vendor.InvalidExpressionError,
            vendor.InvalidHostLabelError,
            vendor.InvalidIMDSEndpointError,
            vendor.InvalidIMDSEndpointModeError,
            vendor.InvalidProxiesConfigError,
            vendor.InvalidRetryConfigurationError,
            vendor.InvalidSTSRegionalEndpointsConfigError,
            vendor.MD5UnavailableError,
            vendor.MissingDependencyException,
            vendor.MissingParametersError,
            vendor.ParamValidationError,
            vendor.ProfileNotFound,
            vendor.ServiceNotInRegionError,
            vendor.UndefinedModelAttributeError,
            vendor.UnknownClientMethodError,
            vendor.UnknownRegionError,
            vendor.UnknownServiceStyle,
            vendor.UnknownSignatureVersionError,
            vendor.UnsupportedServiceProtocolsError,
            vendor.UnsupportedSignatureVersionError,
            vendor.ValidationError,
            ValueError,
            WatcherError,
        ],
        SourceMisconfigured,
    ),
}

_URL = re.compile(r"(https?://)[^/@\s]*@")


def mapped(error: Exception, *, action: str) -> SourceError | None:
    """The error to raise in place of ``error``, or ``None`` if it is none of a source: a mistake in our code.

    ``action`` says what was tried (``receive from <queue>``).
    """
    if isinstance(error, SourceError):
        return error
    if isinstance(error, vendor.ClientError):
        code, message = _answer(error)
        return _answer_class(error)(f"{action}: {code}: {_without_user(message)}")
    for parent in type(error).__mro__:
        if parent in CLIENT_ERRORS:
            text = _without_user(str(error)) or (
                "no answer in time" if parent is TimeoutError else type(error).__name__
            )
            return CLIENT_ERRORS[parent](f"{action}: {text}")
    return None


def receipt_is_gone(code: str, message: str) -> bool:
    """Whether a failed entry of a batch says that its receipt is void: the message is deleted, or will come again."""
    return bare_code(code) in _RECEIPT_GONE or ("receipt handle" in message.lower() and "expired" in message.lower())


def bare_code(code: str) -> str:
    """A code without the prefixes of the older protocol (``AWS.SimpleQueueService.NonExistentQueue``)."""
    return code.rpartition(".")[2].rpartition("#")[2]


def _answer(error: vendor.ClientError) -> tuple[str, str]:
    described = error.response.get("Error", {})
    return str(described.get("Code", "")), str(described.get("Message", "")) or str(error)


def _answer_class(error: vendor.ClientError) -> type[SourceError]:
    code = bare_code(_answer(error)[0])
    if code in CODES:
        return CODES[code]
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if status in {401, 403}:
        return CredentialsRefused
    if status == 429 or status >= 500 or status == 0:
        return SourceUnavailable
    return SourceMisconfigured


def _sentence(error: Exception) -> str:
    if isinstance(error, _UNREADABLE):
        return f"the answer makes no sense ({type(error).__name__}: {error})"
    plain = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return _without_user(str(error)) or plain


def _without_user(text: str) -> str:
    return _URL.sub(r"\1", text)
