from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from app.domain.states import (
    DEAD_LETTER_TRANSITIONS,
    DEMAND_TRANSITIONS,
    FINAL_RUN_STATES,
    FINAL_TASK_STATES,
    GROUP_TRANSITIONS,
    RUN_TRANSITIONS,
    TASK_TRANSITIONS,
    TRIGGER_TRANSITIONS,
    DeadLetterState,
    DemandState,
    GroupState,
    RunState,
    TaskState,
    TriggerStatus,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "state-machines.md"
MACHINES: list[tuple[str, type[StrEnum], Mapping[Any, frozenset[Any]]]] = [
    ("Task instance", TaskState, TASK_TRANSITIONS),
    ("DAG run", RunState, RUN_TRANSITIONS),
    ("Demand", DemandState, DEMAND_TRANSITIONS),
    ("Group", GroupState, GROUP_TRANSITIONS),
    ("Trigger", TriggerStatus, TRIGGER_TRANSITIONS),
    ("Dead letter", DeadLetterState, DEAD_LETTER_TRANSITIONS),
]


def drawn(title: str) -> set[tuple[str, str]]:
    """The arrows of a diagram, those from the start and to the end included."""
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE):
        if section.startswith(title):
            found = re.search(r"```mermaid\n(.*?)```", section, re.DOTALL)
            assert found, f"no diagram under {title}"
            return set(re.findall(r"(\S+) --> (\S+)", found[1]))
    raise AssertionError(f"no section {title}")


@pytest.mark.parametrize(("title", "states", "table"), MACHINES, ids=[machine[0] for machine in MACHINES])
def test_the_diagram_is_the_table(
    title: str, states: type[StrEnum], table: Mapping[StrEnum, frozenset[StrEnum]]
) -> None:
    arrows = drawn(title)

    assert {arrow for arrow in arrows if "[*]" not in arrow} == {
        (a, b) for a, targets in table.items() for b in targets
    }
    assert {a for a, b in arrows if b == "[*]"} == {state for state, targets in table.items() if not targets}
    assert set(table) == set(states)


@pytest.mark.parametrize(("title", "states", "table"), MACHINES, ids=[machine[0] for machine in MACHINES])
def test_every_state_can_be_reached_from_the_start(
    title: str, states: type[StrEnum], table: Mapping[StrEnum, frozenset[StrEnum]]
) -> None:
    reached = {b for a, b in drawn(title) if a == "[*]"}
    while True:
        further = reached | {target for state in states if state in reached for target in table[state]}
        if further == reached:
            break
        reached = further
    assert reached == set(states)


def test_final_states_have_no_way_out_and_all_others_have_one() -> None:
    assert {state for state, targets in TASK_TRANSITIONS.items() if not targets} == FINAL_TASK_STATES
    assert {state for state, targets in RUN_TRANSITIONS.items() if not targets} == FINAL_RUN_STATES
