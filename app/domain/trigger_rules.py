"""When a task may run, by the states of the tasks directly upstream: the field's trigger rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from app.domain.states import TaskState


class TriggerRule(StrEnum):
    """The rules by the names pipeline files use."""

    ALL_SUCCESS = "all_success"  #: Every upstream task succeeded.
    ALL_FAILED = "all_failed"  #: Every upstream task failed or could not run.
    ALL_DONE = "all_done"  #: Every upstream task ended, however.
    ALL_DONE_MIN_ONE_SUCCESS = "all_done_min_one_success"  #: Every upstream task ended and one at least succeeded.
    ALL_DONE_SETUP_SUCCESS = "all_done_setup_success"  #: As ``all_done``: there are no set-up tasks to ask about.
    ALL_SKIPPED = "all_skipped"  #: Every upstream task was skipped.
    ONE_FAILED = "one_failed"  #: One failed or could not run; the others are not waited for.
    ONE_SUCCESS = "one_success"  #: One succeeded; the others are not waited for.
    ONE_DONE = "one_done"  #: One succeeded or failed; the others are not waited for.
    NONE_FAILED = "none_failed"  #: All ended, none failed or could not run.
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"  #: None failed and one at least succeeded.
    NONE_SKIPPED = "none_skipped"  #: All ended, none was skipped.
    ALWAYS = "always"  #: At once, whatever upstream does.


class Decision(StrEnum):
    """What a trigger rule says about a task that has not started."""

    READY = "ready"
    WAIT = "wait"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The tasks directly upstream, counted. Those that could not run count as failed, removed ones as skipped."""

    total: int
    success: int
    failed: int
    skipped: int

    @classmethod
    def of(cls, states: Iterable[TaskState]) -> Upstream:
        """Count the states of all instances directly upstream."""
        counts = Counter(states)
        return cls(
            total=counts.total(),
            success=counts[TaskState.SUCCESS],
            failed=counts[TaskState.FAILED] + counts[TaskState.UPSTREAM_FAILED],
            skipped=counts[TaskState.SKIPPED] + counts[TaskState.REMOVED],
        )

    @property
    def done(self) -> bool:
        """Whether each of them has ended."""
        return self.success + self.failed + self.skipped == self.total


def decide(rule: TriggerRule, states: Iterable[TaskState]) -> Decision:
    """Decide a task by its rule. A task without upstream tasks is ready.

    ``ready`` and the two refusals are given as soon as the states known decide it: what the remaining upstream tasks do
    can turn neither a ``ready`` into a refusal nor a refusal into a ``ready``.
    """
    upstream = Upstream.of(states)
    if upstream.total == 0 or rule is TriggerRule.ALWAYS:
        return Decision.READY
    match rule:
        case TriggerRule.ALL_SUCCESS | TriggerRule.NONE_FAILED | TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS:
            return _decide_without_failure(rule, upstream)
        case TriggerRule.ALL_FAILED:
            return _decide_all(upstream, wanted=upstream.failed, spoilt=upstream.success + upstream.skipped)
        case TriggerRule.ALL_SKIPPED:
            return _decide_all(upstream, wanted=upstream.skipped, spoilt=upstream.success + upstream.failed)
        case TriggerRule.NONE_SKIPPED:
            return _decide_all(upstream, wanted=upstream.success + upstream.failed, spoilt=upstream.skipped)
        case _:
            return _decide_one_or_done(rule, upstream)


def _decide_all(upstream: Upstream, *, wanted: int, spoilt: int) -> Decision:
    if spoilt:
        return Decision.SKIPPED
    return Decision.READY if wanted == upstream.total else Decision.WAIT


def _decide_without_failure(rule: TriggerRule, upstream: Upstream) -> Decision:
    if upstream.failed:
        return Decision.UPSTREAM_FAILED
    if rule is TriggerRule.ALL_SUCCESS and upstream.skipped:
        return Decision.SKIPPED
    if not upstream.done:
        return Decision.WAIT
    if rule is TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS and not upstream.success:
        return Decision.SKIPPED
    return Decision.READY


def _decide_one_or_done(rule: TriggerRule, upstream: Upstream) -> Decision:
    enough = {
        TriggerRule.ONE_SUCCESS: upstream.success,
        TriggerRule.ONE_FAILED: upstream.failed,
        TriggerRule.ONE_DONE: upstream.success + upstream.failed,
    }
    if enough.get(rule):
        return Decision.READY
    if not upstream.done:
        return Decision.WAIT
    if rule in {TriggerRule.ONE_SUCCESS, TriggerRule.ALL_DONE_MIN_ONE_SUCCESS} and not upstream.success:
        return Decision.UPSTREAM_FAILED if upstream.failed else Decision.SKIPPED
    return Decision.SKIPPED if rule in enough else Decision.READY
