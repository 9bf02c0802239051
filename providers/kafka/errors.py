"""Each failure of the Kafka client, mapped once.

What may pass by itself is :class:`SourceUnavailable`; what someone must put right is :class:`SourceMisconfigured`. Both
are retried for as long as the watcher lives, since credentials, rights and topics come back as well.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka import errors as kafka

from watchers.errors import SourceError, SourceMisconfigured, SourceUnavailable

#: Wrong credentials, rights, names, versions or options. Subclasses follow their base.
MISCONFIGURED: frozenset[type[Exception]] = frozenset(
    {
        kafka.AuthenticationFailedError,
        kafka.AuthenticationMethodNotSupported,
        kafka.ClusterAuthorizationFailedError,
        kafka.DelegationTokenAuthDisabled,
        kafka.DelegationTokenAuthorizationFailed,
        kafka.DelegationTokenExpired,
        kafka.DelegationTokenNotFound,
        kafka.DelegationTokenOwnerMismatch,
        kafka.DelegationTokenRequestNotAllowed,
        kafka.GroupAuthorizationFailedError,
        kafka.GroupIdNotFound,
        kafka.IllegalArgumentError,
        kafka.IllegalOperation,
        kafka.IllegalSaslStateError,
        kafka.IncompatibleBrokerVersion,
        kafka.InconsistentGroupProtocolError,
        kafka.InvalidCommitOffsetSizeError,
        kafka.InvalidConfigurationError,
        kafka.InvalidGroupIdError,
        kafka.InvalidPartitionsError,
        kafka.InvalidPrincipalType,
        kafka.InvalidReplicationAssignmentError,
        kafka.InvalidReplicationFactorError,
        kafka.InvalidRequestError,
        kafka.InvalidRequiredAcksError,
        kafka.InvalidSessionTimeoutError,
        kafka.InvalidTimestampError,
        kafka.InvalidTopicError,
        kafka.InvalidTransactionTimeout,
        kafka.KafkaConfigurationError,
        kafka.ListenerNotFound,
        kafka.MessageSizeTooLargeError,
        kafka.NoOffsetForPartitionError,
        kafka.OffsetMetadataTooLargeError,
        kafka.PolicyViolationError,
        kafka.RecordListTooLargeError,
        kafka.RecordTooLargeError,
        kafka.SaslAuthenticationFailed,
        kafka.SecurityDisabled,
        kafka.TopicAlreadyExistsError,
        kafka.TopicAuthorizationFailedError,
        kafka.TransactionalIdAuthorizationFailed,
        kafka.UnrecognizedBrokerVersion,
        kafka.UnsupportedCodecError,
        kafka.UnsupportedForMessageFormatError,
        kafka.UnsupportedSaslMechanismError,
        kafka.UnsupportedVersionError,
    }
)

#: Connections, elections, load and time-outs. ``KafkaError`` itself is the base of what a later client may add.
UNAVAILABLE: frozenset[type[Exception]] = frozenset(
    {
        kafka.BrokerNotAvailableError,
        kafka.BrokerResponseError,
        kafka.Cancelled,
        kafka.CommitFailedError,
        kafka.ConcurrentTransactions,
        kafka.ConsumerStoppedError,
        kafka.CorrelationIdError,
        kafka.CorruptRecordException,
        kafka.DuplicateSequenceNumber,
        kafka.FetchSessionIdNotFound,
        kafka.GroupCoordinatorNotAvailableError,
        kafka.GroupLoadInProgressError,
        kafka.IllegalGenerationError,
        kafka.IllegalStateError,
        kafka.InvalidFetchRequestError,
        kafka.InvalidFetchSessionEpoch,
        kafka.InvalidProducerEpoch,
        kafka.InvalidProducerIdMapping,
        kafka.InvalidTxnState,
        kafka.KafkaConnectionError,
        kafka.KafkaError,
        kafka.KafkaProtocolError,
        kafka.KafkaStorageError,
        kafka.KafkaTimeoutError,
        kafka.KafkaUnavailableError,
        kafka.LeaderNotAvailableError,
        kafka.LogDirNotFound,
        kafka.MemberIdRequired,
        kafka.MetadataEmptyBrokerList,
        kafka.NoBrokersAvailable,
        kafka.NoError,
        kafka.NodeNotReadyError,
        kafka.NonEmptyGroup,
        kafka.NotControllerError,
        kafka.NotCoordinatorForGroupError,
        kafka.NotEnoughReplicasAfterAppendError,
        kafka.NotEnoughReplicasError,
        kafka.NotLeaderForPartitionError,
        kafka.OffsetOutOfRangeError,
        kafka.OperationNotAttempted,
        kafka.OutOfOrderSequenceNumber,
        kafka.ProducerClosed,
        kafka.ProducerFenced,
        kafka.QuotaViolationError,
        kafka.ReassignmentInProgress,
        kafka.RebalanceInProgressError,
        kafka.ReplicaNotAvailableError,
        kafka.RequestTimedOutError,
        kafka.StaleControllerEpochError,
        kafka.StaleLeaderEpochCodeError,
        kafka.StaleMetadata,
        kafka.TooManyInFlightRequests,
        kafka.TransactionCoordinatorFenced,
        kafka.UnknownError,
        kafka.UnknownMemberIdError,
        kafka.UnknownProducerId,
        kafka.UnknownTopicOrPartitionError,
    }
)


def translate(error: Exception, *, doing: str) -> SourceError:
    """The :class:`SourceError` for ``error``, which happened while ``doing``; its cause is kept by the caller."""
    described = f"{doing}: {describe(error)}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return SourceMisconfigured(described)
    for ancestor in type(error).__mro__:
        if ancestor in MISCONFIGURED:
            return SourceMisconfigured(described)
        if ancestor in UNAVAILABLE:
            return SourceUnavailable(described)
    return SourceUnavailable(described)


def describe(error: BaseException) -> str:
    """The kind of ``error`` and what it says, on one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn what the client raises, and time-outs and broken connections, into :class:`SourceError`.

    The client lets cancellations of its own tasks out; they must not pass for a cancellation of ours.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise SourceUnavailable(f"{doing}: the client gave up") from error
    except (TimeoutError, kafka.KafkaError, kafka.ConsumerStoppedError, kafka.IllegalOperation, OSError) as error:
        raise translate(error, doing=doing) from error


__all__ = ["MISCONFIGURED", "UNAVAILABLE", "describe", "translate", "translated"]
