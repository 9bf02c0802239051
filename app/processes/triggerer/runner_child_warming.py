"""Imports of triggers that this runner may be given: done in a thread, ahead of their start."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence

from watchers.importing import import_class

_log = logging.getLogger("tidegate.runner")


def import_ahead(classpaths: Sequence[str]) -> None:
    """Import these classes and what they import when they run. What fails is told when such a trigger starts."""
    for path in classpaths:
        try:
            for module in getattr(import_class(path), "runs_with", ()):
                importlib.import_module(module)
        except BaseException:  # noqa: BLE001 — an import runs any code, and nobody needs it yet
            _log.debug("%s cannot be imported ahead", path, exc_info=True)
