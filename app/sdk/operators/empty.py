"""A task that does nothing: a place where edges meet."""

from __future__ import annotations

from typing import Any

from app.sdk.operators.base import BaseOperator


class EmptyOperator(BaseOperator):
    """Succeeds at once."""

    def execute(self, context: Any) -> None:
        """Nothing."""
