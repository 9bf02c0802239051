"""Where inside a nested value: written only when something there is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass

_LONGEST_KEY = 60
_MOST_STEPS = 24


@dataclass(frozen=True, slots=True)
class Location:
    """A chain of steps from the outermost value inwards; ``str()`` gives ``payload.items[3]["odd key"]``."""

    parent: Location | None
    step: str | int

    @classmethod
    def root(cls, name: str) -> Location:
        return cls(None, name)

    def member(self, step: str | int) -> Location:
        return Location(self, step)

    def __str__(self) -> str:
        steps: list[str] = []
        place = self
        while place.parent is not None:
            steps.append(_written(place.step))
            place = place.parent
        steps.append(str(place.step))
        if len(steps) > _MOST_STEPS:
            del steps[_MOST_STEPS // 4 : -_MOST_STEPS // 2]
            steps.insert(_MOST_STEPS // 4, "…")
        return "".join(reversed(steps))


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    shown = step if len(step) <= _LONGEST_KEY else step[:_LONGEST_KEY] + "…"
    return f".{shown}" if shown.isascii() and shown.isidentifier() else f"[{json.dumps(shown)}]"
