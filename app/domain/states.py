"""States of runs, task attempts and triggers, and the only ways between them.

Each transition is carried out by one guarded UPDATE in ``app.store`` that repeats the from-states given here and the
owner (attempt or epoch). Nobody assigns a state.

Task instances (letters are the arrows of ``docs/state-machines.md``)::

    none ─a─▶ scheduled ─b─▶ queued ─c─▶ running ─d─▶ success | failed | skipped
      │                        │            │ └─e─▶ up_for_retry ─f─▶ scheduled
      │                        └──── g ─────┘ (lost process: up_for_retry or failed by the retry rule)
      └─h─▶ skipped | upstream_failed | removed
    running ─i─▶ deferred ─j─▶ scheduled | success | failed | skipped | up_for_retry
    running ─k─▶ up_for_reschedule ─f─▶ scheduled
"""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """Where a task instance stands."""

    NONE = "none"  #: Entered at run creation; the scheduler moves it on when its trigger rule is decided.
    SCHEDULED = "scheduled"  #: Ready. Entered by the scheduler; an executor claims it.
    QUEUED = "queued"  #: Claimed by an executor (owner and epoch set); it starts it, or its loss is noticed.
    RUNNING = "running"  #: The attempt's process runs; ended by its outcome, its time limit or the loss of its owner.
    DEFERRED = "deferred"  #: Waits for a trigger; ended by the trigger's event, failure or time-out.
    UP_FOR_RETRY = "up_for_retry"  #: Failed with tries left; the scheduler moves it on when its delay is over.
    UP_FOR_RESCHEDULE = "up_for_reschedule"  #: A sensor gave its slot back until a time; same try.
    SUCCESS = "success"  #: Final.
    FAILED = "failed"  #: Final: tries exhausted, or failed for good.
    SKIPPED = "skipped"  #: Final: skipped by itself or by its trigger rule.
    UPSTREAM_FAILED = "upstream_failed"  #: Final: an upstream failure makes its trigger rule unsatisfiable.
    REMOVED = "removed"  #: Final: the run's version no longer has the task.


FINAL_TASK_STATES = frozenset(
    {TaskState.SUCCESS, TaskState.FAILED, TaskState.SKIPPED, TaskState.UPSTREAM_FAILED, TaskState.REMOVED}
)

_ENDS = frozenset({TaskState.SUCCESS, TaskState.FAILED, TaskState.SKIPPED, TaskState.UP_FOR_RETRY})

TASK_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.NONE: frozenset({TaskState.SCHEDULED, TaskState.SKIPPED, TaskState.UPSTREAM_FAILED, TaskState.REMOVED}),
    TaskState.SCHEDULED: frozenset({TaskState.QUEUED, TaskState.FAILED, TaskState.SKIPPED, TaskState.REMOVED}),
    TaskState.QUEUED: frozenset({TaskState.RUNNING, TaskState.SCHEDULED, TaskState.UP_FOR_RETRY, TaskState.FAILED}),
    TaskState.RUNNING: _ENDS | {TaskState.DEFERRED, TaskState.UP_FOR_RESCHEDULE},
    TaskState.DEFERRED: _ENDS | {TaskState.SCHEDULED},
    TaskState.UP_FOR_RETRY: frozenset({TaskState.SCHEDULED, TaskState.FAILED}),
    TaskState.UP_FOR_RESCHEDULE: frozenset({TaskState.SCHEDULED, TaskState.FAILED}),
    **{state: frozenset() for state in FINAL_TASK_STATES},
}


class RunState(StrEnum):
    """Where a DAG run stands."""

    QUEUED = "queued"  #: Made (by hand, say) but not started: waits for max_active_runs or for unpausing.
    RUNNING = "running"  #: Its tasks are being worked on; ended by the scheduler when all are final.
    SUCCESS = "success"  #: Final: every leaf succeeded or was skipped.
    FAILED = "failed"  #: Final: a leaf failed or could not run.


FINAL_RUN_STATES = frozenset({RunState.SUCCESS, RunState.FAILED})

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.FAILED}),
    RunState.RUNNING: FINAL_RUN_STATES,
    RunState.SUCCESS: frozenset(),
    RunState.FAILED: frozenset(),
}


class RunType(StrEnum):
    """Why a run exists, in the field's words."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    ASSET_TRIGGERED = "asset_triggered"
    BACKFILL = "backfill"


class TriggerStatus(StrEnum):
    """Where a trigger stands."""

    UNASSIGNED = "unassigned"  #: Wanted, owned by nobody; a triggerer with capacity claims it.
    RUNNING = "running"  #: Owned (owner, epoch) and running in a runner.
    BACKING_OFF = "backing_off"  #: Owned; its code failed and it starts again at ``next_attempt_at``.
    QUARANTINED = "quarantined"  #: Owned; it blocked or killed its runner and is retried alone, with growing pauses.


class ShownTriggerStatus(StrEnum):
    """Where a trigger stands, as people are told: its state, or why nobody will take it."""

    UNASSIGNED = "unassigned"
    RUNNING = "running"
    BACKING_OFF = "backing_off"
    QUARANTINED = "quarantined"
    UNSERVED = "unserved"  #: Wanted and unassigned, and no live triggerer serves its queue and team.


TRIGGER_TRANSITIONS: dict[TriggerStatus, frozenset[TriggerStatus]] = {
    TriggerStatus.UNASSIGNED: frozenset({TriggerStatus.RUNNING}),
    TriggerStatus.RUNNING: frozenset({TriggerStatus.UNASSIGNED, TriggerStatus.BACKING_OFF, TriggerStatus.QUARANTINED}),
    TriggerStatus.BACKING_OFF: frozenset({TriggerStatus.RUNNING, TriggerStatus.UNASSIGNED, TriggerStatus.QUARANTINED}),
    TriggerStatus.QUARANTINED: frozenset({TriggerStatus.RUNNING, TriggerStatus.UNASSIGNED}),
}


class DemandState(StrEnum):
    """What became of one event for one consumer DAG."""

    PENDING = "pending"  #: Waits for its condition to complete.
    GROUPED = "grouped"  #: Part of a closed group that will be one run.
    CONSUMED = "consumed"  #: Final: a cause of a run.
    SKIPPED = "skipped"  #: Final: the DAG was paused when the event arrived.
    DROPPED = "dropped"  #: Final: deleted by a user, or its asset left the schedule.


DEMAND_TRANSITIONS: dict[DemandState, frozenset[DemandState]] = {
    DemandState.PENDING: frozenset({DemandState.GROUPED, DemandState.DROPPED}),
    DemandState.GROUPED: frozenset({DemandState.CONSUMED, DemandState.PENDING, DemandState.DROPPED}),
    DemandState.CONSUMED: frozenset(),
    DemandState.SKIPPED: frozenset(),
    DemandState.DROPPED: frozenset(),
}


class DeadLetterState(StrEnum):
    """Where a message stands that could not become an event. Deleting it ends either state."""

    HELD = "held"  #: Entered when the message is refused; a person requeues or deletes it, retention deletes it.
    REQUEUED = "requeued"  #: Final: its events were made. Kept, so that a redelivery makes no second letter.


DEAD_LETTER_TRANSITIONS: dict[DeadLetterState, frozenset[DeadLetterState]] = {
    DeadLetterState.HELD: frozenset({DeadLetterState.REQUEUED}),
    DeadLetterState.REQUEUED: frozenset(),
}


class GroupState(StrEnum):
    """A set of events that will be, or was, one run."""

    COLLECTING = "collecting"  #: A batch that is still open.
    READY = "ready"  #: Closed; waits in order for a run to start.
    STARTED = "started"  #: Final: its run exists.


GROUP_TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.COLLECTING: frozenset({GroupState.READY}),
    GroupState.READY: frozenset({GroupState.STARTED}),
    GroupState.STARTED: frozenset(),
}
