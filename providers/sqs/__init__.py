"""Amazon SQS and whatever speaks its protocol: ``sqs://name`` or a queue's URL. Needs the extra ``sqs``."""

from __future__ import annotations

from providers.sqs.provider import SqsProvider

__all__ = ["SqsProvider"]
