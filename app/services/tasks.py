"""Task attempts: claimed by an executor, started, ended with everything that follows, given back or lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.domain.orders import AttemptOrder, Failed
from app.domain.states import TaskState
from app.kernel.crash_points import CrashPoint, reach
from app.kernel.telemetry import get_logger
from app.services.attempt_ends import AttemptReport, Ending, Lost, ReportResult
from app.services.attempts import orders_of
from app.store import tasks as statements
from app.store import xcoms
from app.store.database import Database, HotConnection
from app.store.errors import Conflict, DatabaseUnavailable
from app.store.statement_plans import plan_for_values
from app.store.wakeups import Notifier
from app.store.xcoms import XComRow

__all__ = [
    "AttemptReport",
    "Lost",
    "ReportResult",
    "StartedAttempt",
    "claim",
    "fail_lost",
    "fail_lost_of_ended",
    "finish",
    "give_back",
    "mark_running",
    "pull_xcoms",
    "push_xcoms",
    "requeue_due",
]

_log = get_logger("tasks")
_REQUEUED_AT_ONCE = 500
#: How long to wait while another executor claims from the only DAG with something to claim, in seconds.
_CLAIM_PATIENCE = 0.2


async def claim(database: Database, *, owner_id: int, limit: int) -> list[AttemptOrder]:
    """Claim up to ``limit`` scheduled tasks for the job ``owner_id``, as orders.

    By priority, fair between DAGs, within each DAG's ``max_active_tasks``; nothing of paused DAGs.
    """

    async def work(hot: HotConnection) -> list[AttemptOrder]:
        waiting, contended = await statements.lock_claimable_dags(hot)
        if not waiting and not contended:
            return []
        if not waiting:
            # What the other executor leaves is for us; nobody would wake us for it.
            await statements.wait_for_claims(hot, dag_id=contended[0], patience=_CLAIM_PATIENCE)
            waiting = {contended[0]: limit}
        await plan_for_values(hot, rows=sum(waiting.values()))
        claimed = await statements.claim(hot, owner_id=owner_id, dag_ids=sorted(waiting), limit=limit)
        return await orders_of(database, hot, owner_id=owner_id, claimed=claimed) if claimed else []

    if limit <= 0:
        return []
    try:
        async with database.hot() as hot:
            return await work(hot)
    except Conflict:
        return []  # another executor is slow to claim; the next look is a second away at most


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedAttempt:
    """An attempt whose process is there and waits to be let go."""

    task_instance_id: int
    epoch: int
    pid: int | None = None


async def mark_running(
    database: Database, *, owner_id: int, attempts: Sequence[StartedAttempt], hostname: str | None = None
) -> set[int]:
    """Record starts; the task instances that may run. An attempt not among them was taken away: end its process."""
    rows = [(attempt.task_instance_id, attempt.epoch, attempt.pid) for attempt in attempts]
    return await database.retrying_statement(
        lambda hot: statements.mark_running(hot, owner_id=owner_id, attempts=rows, hostname=hostname)
    )


async def finish(
    database: Database, notifier: Notifier, *, owner_id: int, reports: Sequence[AttemptReport]
) -> list[ReportResult]:
    """End attempts: state, XComs, outlet events and what follows for their runs, in one transaction.

    One result a report, in order. If one of them cannot be stored, each is stored by itself; one that cannot be stored
    fails for that reason.
    """
    try:
        return await _finish_together(database, notifier, owner_id=owner_id, reports=reports)
    except (Conflict, DatabaseUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - one result that cannot be stored must not hold up the others
        if len(reports) > 1:
            return [
                result
                for report in reports
                for result in await finish(database, notifier, owner_id=owner_id, reports=[report])
            ]
        [report] = reports
        _log.exception(
            "the result of a task could not be stored",
            action="result_refused",
            task_instance_id=report.task_instance_id,
        )
        reason = f"the result could not be stored: {type(error).__name__}: {error}"
        failed = replace(report, outcome=Failed(error=reason, retry=False))
        return await _finish_together(database, notifier, owner_id=owner_id, reports=[failed])


async def _finish_together(
    database: Database, notifier: Notifier, *, owner_id: int, reports: Sequence[AttemptReport]
) -> list[ReportResult]:
    async def work(hot: HotConnection) -> Ending:
        ending = Ending(database, hot, owner_id=owner_id)
        await ending.run(reports)
        reach(CrashPoint.FINISH_UNCOMMITTED)
        return ending

    ending = await database.retrying_hot(work)
    reach(CrashPoint.FINISHED)
    if ending.topics:
        notifier.poke(*ending.topics)
    return [
        ReportResult(task_instance_id=report.task_instance_id, state=ending.states.get(report.task_instance_id))
        for report in reports
    ]


async def requeue_due(database: Database, notifier: Notifier) -> int:
    """Schedule the tasks whose retry delay is over; how many."""
    total = 0
    while True:
        again = await database.retrying_statement(lambda hot: statements.requeue_due(hot, limit=_REQUEUED_AT_ONCE))
        if again:
            notifier.poke("tasks")
        total += len(again)
        if len(again) < _REQUEUED_AT_ONCE:
            return total


async def give_back(database: Database, notifier: Notifier, *, owner_id: int, but: Sequence[AttemptOrder] = ()) -> int:
    """An executor returns what it claimed and has not started, ``but`` some; how many.

    All of it when it stops. All but what it knows of when the answer to a claim may have been lost on its way.
    """
    kept = [(order.task_instance_id, order.epoch) for order in but]
    returned = await database.retrying_hot(
        lambda hot: statements.give_back(hot, owner_id=owner_id, attempts=None, but=kept)
    )
    if returned:
        notifier.poke("tasks")
    return len(returned)


async def fail_lost(database: Database, notifier: Notifier, *, owner_ids: Sequence[int], reason: str) -> int:
    """These owners are gone: what had not started is given back, what ran is retried by its rule; how many ran."""
    async with database.hot() as hot:
        owned = await statements.read_owned(hot, owner_ids=owner_ids)
    total = 0
    for owner_id in sorted({attempt.owner_id for attempt in owned}):
        await give_back(database, notifier, owner_id=owner_id)
        reports = [
            AttemptReport(
                task_instance_id=attempt.id,
                epoch=attempt.epoch,
                try_number=attempt.try_number,
                max_tries=attempt.max_tries,
                outcome=Lost(reason=reason),
            )
            for attempt in owned
            if attempt.owner_id == owner_id and attempt.state is TaskState.RUNNING
        ]
        if reports:
            results = await finish(database, notifier, owner_id=owner_id, reports=reports)
            total += sum(not result.is_stale for result in results)
    return total


async def fail_lost_of_ended(database: Database, notifier: Notifier) -> int:
    """:func:`fail_lost` for every owner whose process is on record as ended."""
    async with database.glance() as hot:
        owners = await statements.read_ended_owners(hot)
    if not owners:
        return 0
    return await fail_lost(database, notifier, owner_ids=owners, reason="its executor ended")


async def pull_xcoms(
    database: Database, *, dag_id: str, run_id: str, task_ids: Sequence[str], key: str, map_index: int | None = None
) -> Sequence[XComRow]:
    """XComs of a run, as canonical texts."""
    async with database.glance() as hot:
        return await xcoms.read_xcoms(
            hot, dag_id=dag_id, run_id=run_id, task_ids=task_ids, key=key, map_index=map_index
        )


async def push_xcoms(database: Database, order: AttemptOrder, values: Mapping[str, str]) -> bool:
    """Store XComs of a running attempt now; False if the attempt is no longer the current one."""

    async def work(hot: HotConnection) -> bool:
        run_key = await statements.read_run_of_attempt(hot, instance_id=order.task_instance_id, epoch=order.epoch)
        if run_key is None:
            return False
        rows = [
            XComRow(dag_run_id=run_key, task_id=order.task_id, map_index=order.map_index, key=key, value=value)
            for key, value in values.items()
        ]
        await xcoms.upsert_xcoms(hot, rows=rows)
        return True

    return await database.retrying_hot(work)
