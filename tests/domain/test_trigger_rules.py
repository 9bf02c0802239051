from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.states import FINAL_TASK_STATES, TaskState
from app.domain.trigger_rules import Decision, TriggerRule, decide

S, F, K, U, R, N = (
    TaskState.SUCCESS,
    TaskState.FAILED,
    TaskState.SKIPPED,
    TaskState.UPSTREAM_FAILED,
    TaskState.RUNNING,
    TaskState.NONE,
)
READY, WAIT, SKIPPED, UPSTREAM_FAILED = Decision.READY, Decision.WAIT, Decision.SKIPPED, Decision.UPSTREAM_FAILED

CASES = [
    ("all_success", [S, S], READY),
    ("all_success", [S, R], WAIT),
    ("all_success", [F, R], UPSTREAM_FAILED),
    ("all_success", [K, R], SKIPPED),
    ("all_success", [K, U], UPSTREAM_FAILED),
    ("all_failed", [F, U], READY),
    ("all_failed", [F, R], WAIT),
    ("all_failed", [S, R], SKIPPED),
    ("all_failed", [F, K], SKIPPED),
    ("all_done", [S, F, K, U], READY),
    ("all_done", [S, R], WAIT),
    ("all_done_setup_success", [F, K], READY),
    ("all_done_min_one_success", [S, F], READY),
    ("all_done_min_one_success", [S, R], WAIT),
    ("all_done_min_one_success", [F, K], UPSTREAM_FAILED),
    ("all_done_min_one_success", [K, K], SKIPPED),
    ("all_skipped", [K, K], READY),
    ("all_skipped", [K, N], WAIT),
    ("all_skipped", [K, S], SKIPPED),
    ("one_failed", [F, R], READY),
    ("one_failed", [U, N], READY),
    ("one_failed", [S, R], WAIT),
    ("one_failed", [S, K], SKIPPED),
    ("one_success", [S, R], READY),
    ("one_success", [F, R], WAIT),
    ("one_success", [F, K], UPSTREAM_FAILED),
    ("one_success", [K, K], SKIPPED),
    ("one_done", [S, N], READY),
    ("one_done", [F, N], READY),
    ("one_done", [K, N], WAIT),
    ("one_done", [K, K], SKIPPED),
    ("none_failed", [S, K], READY),
    ("none_failed", [K, K], READY),
    ("none_failed", [S, R], WAIT),
    ("none_failed", [U, R], UPSTREAM_FAILED),
    ("none_failed_min_one_success", [S, K], READY),
    ("none_failed_min_one_success", [K, K], SKIPPED),
    ("none_failed_min_one_success", [S, F], UPSTREAM_FAILED),
    ("none_failed_min_one_success", [S, R], WAIT),
    ("none_skipped", [S, F, U], READY),
    ("none_skipped", [S, K, R], SKIPPED),
    ("none_skipped", [S, R], WAIT),
    ("always", [R, N], READY),
]


@pytest.mark.parametrize(("rule", "states", "expected"), CASES)
def test_rules_by_example(rule: str, states: list[TaskState], expected: Decision) -> None:
    assert decide(TriggerRule(rule), states) is expected


def test_every_rule_has_examples() -> None:
    assert {rule for rule, _, _ in CASES} == {rule.value for rule in TriggerRule}


rules = st.sampled_from(TriggerRule)
states = st.lists(st.sampled_from(TaskState), max_size=6)


@given(rules)
def test_a_task_without_upstream_is_ready(rule: TriggerRule) -> None:
    assert decide(rule, []) is READY


@given(rules, st.lists(st.sampled_from(sorted(FINAL_TASK_STATES)), max_size=6))
def test_every_rule_decides_once_all_upstream_tasks_ended(rule: TriggerRule, final: list[TaskState]) -> None:
    assert decide(rule, final) is not WAIT


@given(rules, states, st.data())
def test_later_ends_never_turn_ready_into_a_refusal_or_back(
    rule: TriggerRule, before: list[TaskState], data: st.DataObject
) -> None:
    ends = st.sampled_from(sorted(FINAL_TASK_STATES))
    after = [state if state in FINAL_TASK_STATES else data.draw(ends) for state in before]
    first, last = decide(rule, before), decide(rule, after)

    if first is READY:
        assert last is READY
    elif first in {SKIPPED, UPSTREAM_FAILED}:
        assert last in {SKIPPED, UPSTREAM_FAILED}


@given(rules, states, st.randoms())
def test_the_order_of_upstream_tasks_does_not_matter(
    rule: TriggerRule, given_states: list[TaskState], random: object
) -> None:
    shuffled = list(given_states)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert decide(rule, shuffled) is decide(rule, given_states)
