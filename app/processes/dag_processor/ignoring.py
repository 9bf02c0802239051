"""Which files below the pipelines folder are pipeline files: ``.tidegateignore`` and what is never read.

Patterns are those of gitignore: one a line, ``#`` comments, ``!`` takes back, ``/`` at the end means a folder, and each
file applies to the folder it lies in and everything below. An ignored folder is not entered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

IGNORE_FILE = ".tidegateignore"


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The patterns that apply in one folder, those of the folder itself last. ``folder`` is ``""`` or ends in ``/``."""

    rules: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def within(self, folder: str, patterns: Iterable[str]) -> tuple[IgnoreRules, list[tuple[int, str]]]:
        """These rules and ``patterns`` of ``folder``; and (line, reason) of each pattern that is none."""
        good: list[str] = []
        faults: list[tuple[int, str]] = []
        for number, pattern in enumerate(patterns, start=1):
            try:
                GitIgnoreSpec.from_lines([pattern])
            except ValueError as error:
                faults.append((number, str(error)))
            else:
                good.append(pattern)
        return IgnoreRules((*self.rules, (folder, GitIgnoreSpec.from_lines(good)))), faults

    def ignores(self, path: str) -> bool:
        """Whether the file (the folder if ``path`` ends in ``/``) is left out. The deepest rule that says decides."""
        for folder, spec in reversed(self.rules):
            verdict = spec.check_file(path.removeprefix(folder)).include
            if verdict is not None:
                return verdict
        return False


def is_hidden(name: str) -> bool:
    """Names that are never read: hidden ones, and Python's cache."""
    return name.startswith(".") or name == "__pycache__"
