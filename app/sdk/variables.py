"""Variables as pipeline code reads them."""

from __future__ import annotations

import json
from typing import Any

from watchers.connections import get_variable
from watchers.errors import VariableNotFound

_MISSING: Any = object()


class Variable:
    """Texts that a deployment configures. In a task they come through the executor, elsewhere from the environment."""

    @staticmethod
    def get(key: str, default: Any = _MISSING, *, deserialize_json: bool = False, default_var: Any = _MISSING) -> Any:
        """The variable ``key``, read as JSON with ``deserialize_json``; ``default`` if there is none.

        Raises ``VariableNotFound`` without a default, :class:`ValueError` for a text that is not JSON (which it hides).
        """
        fallback = default if default is not _MISSING else default_var
        try:
            text = get_variable(key)
        except VariableNotFound:
            if fallback is _MISSING:
                raise
            return fallback
        if not deserialize_json:
            return text
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError(f"variable {key!r} is no JSON") from None
