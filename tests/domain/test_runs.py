from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from app.domain.retries import MAX_RETRY_DELAY, may_retry, retry_delay
from app.domain.runs import Instance, TaskGraph, advance, make_run_id
from app.domain.specs import TaskSpec
from app.domain.states import FINAL_TASK_STATES, TASK_TRANSITIONS, RunState, RunType, TaskState
from app.domain.trigger_rules import TriggerRule
from app.kernel.ids import short_suffix


def task(task_id: str, *upstream: str, rule: str = "all_success") -> TaskSpec:
    return TaskSpec(task_id=task_id, operator="EmptyOperator", upstream=upstream, trigger_rule=rule)


def instances(**states: str) -> list[Instance]:
    return [Instance(id=n, task_id=name, state=TaskState(state)) for n, (name, state) in enumerate(states.items())]


def moved(graph: TaskGraph, **states: str) -> tuple[dict[str, str], RunState | None]:
    given_instances = instances(**states)
    result = advance(graph, given_instances)
    names = {instance.id: instance.task_id for instance in given_instances}
    return {names[member]: str(state) for member, state, _ in result.moves}, result.end


DIAMOND = TaskGraph.of([task("join", "left", "right"), task("left", "top"), task("right", "top"), task("top")])


def test_roots_and_leaves() -> None:
    assert DIAMOND.roots == {"top"}
    assert DIAMOND.leaves == {"join"}


def test_a_task_ready_by_its_rule_alone_is_a_root() -> None:
    assert TaskGraph.of([task("a"), task("b", "a", rule="always")]).roots == {"a", "b"}


def test_downstream_becomes_ready() -> None:
    assert moved(DIAMOND, top="success", left="none", right="none", join="none") == (
        {"left": "scheduled", "right": "scheduled"},
        None,
    )


def test_a_failure_cascades_to_the_end_in_one_step() -> None:
    assert moved(DIAMOND, top="failed", left="none", right="none", join="none") == (
        {"left": "upstream_failed", "right": "upstream_failed", "join": "upstream_failed"},
        RunState.FAILED,
    )


def test_a_skip_cascades_and_the_run_succeeds() -> None:
    assert moved(DIAMOND, top="skipped", left="none", right="none", join="none") == (
        {"left": "skipped", "right": "skipped", "join": "skipped"},
        RunState.SUCCESS,
    )


def test_a_failure_cleaned_up_by_a_later_task_does_not_fail_the_run() -> None:
    graph = TaskGraph.of([task("work"), task("cleanup", "work", rule="all_done")])

    assert moved(graph, work="failed", cleanup="none") == ({"cleanup": "scheduled"}, None)
    assert moved(graph, work="failed", cleanup="success") == ({}, RunState.SUCCESS)


def test_the_reason_names_the_upstream_task() -> None:
    result = advance(DIAMOND, instances(top="failed", left="none", right="none", join="none"))

    assert "top failed" in result.moves[0][2]


def test_a_run_without_tasks_succeeds() -> None:
    assert moved(TaskGraph.of([])) == ({}, RunState.SUCCESS)


def test_an_instance_of_a_task_the_version_lost_is_removed() -> None:
    assert moved(TaskGraph.of([task("a")]), a="success", gone="none") == ({"gone": "removed"}, RunState.SUCCESS)


@st.composite
def graphs(draw: st.DrawFn) -> list[TaskSpec]:
    names = [f"t{n}" for n in range(draw(st.integers(0, 7)))]
    specs = []
    for n, name in enumerate(names):
        upstream = draw(st.lists(st.sampled_from(names[:n]), unique=True, max_size=3)) if n else []
        specs.append(task(name, *upstream, rule=draw(st.sampled_from(TriggerRule))))
    return draw(st.permutations(specs))


@given(graphs(), st.data())
def test_every_run_ends_whatever_its_tasks_do(specs: list[TaskSpec], data: st.DataObject) -> None:
    graph = TaskGraph.of(specs)
    states = {spec.task_id: TaskState.NONE for spec in specs}
    ends = st.sampled_from([TaskState.SUCCESS, TaskState.FAILED, TaskState.SKIPPED])
    for _ in range(2 * len(specs) + 2):
        result = advance(graph, [Instance(id=n, task_id=name, state=s) for n, (name, s) in enumerate(states.items())])
        names = list(states)
        for member, target, _ in result.moves:
            assert target in TASK_TRANSITIONS[states[names[member]]]
            states[names[member]] = target
        if result.end is not None:
            assert all(state in FINAL_TASK_STATES for state in states.values())
            return
        working = sorted(name for name, state in states.items() if state is TaskState.SCHEDULED)
        assert working, "nothing works and the run has not ended"
        states[data.draw(st.sampled_from(working))] = data.draw(ends)
    raise AssertionError("the run did not end")


@given(graphs())
def test_roots_are_what_advancing_a_new_run_makes_ready(specs: list[TaskSpec]) -> None:
    graph = TaskGraph.of(specs)
    fresh = [Instance(id=n, task_id=spec.task_id, state=TaskState.NONE) for n, spec in enumerate(specs)]

    ready = {specs[member].task_id for member, state, _ in advance(graph, fresh).moves if state is TaskState.SCHEDULED}
    assert ready == graph.roots


def test_run_ids() -> None:
    moment = datetime(2026, 5, 1, 12, 0, 0, 250000, tzinfo=timezone(timedelta(hours=2)))

    assert make_run_id(RunType.MANUAL, moment) == "manual__2026-05-01T10:00:00.250000+00:00"
    made = make_run_id(RunType.ASSET_TRIGGERED, datetime(2026, 5, 1, tzinfo=UTC), suffix=short_suffix())
    assert re.fullmatch(r"asset_triggered__2026-05-01T00:00:00\+00:00_[A-Za-z0-9]{8}", made)


def test_tries_are_counted_without_the_first() -> None:
    assert not may_retry(try_number=1, max_tries=0)
    assert may_retry(try_number=2, max_tries=2)
    assert not may_retry(try_number=3, max_tries=2)


def test_a_plain_delay_is_kept() -> None:
    assert retry_delay(0.5, try_number=7, max_delay=0.1) == 0.5


@given(st.floats(0, 1e6), st.integers(1, 10_000), st.text(), st.none() | st.floats(0.1, 1e5))
def test_exponential_delays_double_with_bounded_jitter(
    delay: float, try_number: int, identity: str, cap: float | None
) -> None:
    found = retry_delay(delay, try_number=try_number, exponential=True, max_delay=cap, identity=identity)
    again = retry_delay(delay, try_number=try_number, exponential=True, max_delay=cap, identity=identity)

    assert found == again
    assert 0 < found <= min(MAX_RETRY_DELAY, cap or MAX_RETRY_DELAY)
    base = delay * 2.0 ** min(try_number - 1, 60)
    if cap is None and 1 <= base < MAX_RETRY_DELAY / 2:
        assert base <= found <= 2 * (base + 1)
