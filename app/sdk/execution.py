"""Running one attempt of one task: from its order to its outcome. The outcome is a value; nothing is raised.

1. Context and template fields are made on a copy of the operator.
2. ``execute`` runs, bounded by ``execution_timeout`` and ended by SIGTERM; then ``on_kill`` is called.
3. The result becomes XComs, the outlets events.
4. Callbacks run, once the end is known. What they raise is logged and changes nothing.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from app.domain.orders import AttemptOrder, Failed, Outcome, Skipped, Succeeded
from app.domain.retries import may_retry
from app.sdk.context import Context, build_context, current
from app.sdk.dag import DAG
from app.sdk.errors import FailTask, SkipTask, TaskTimeout
from app.sdk.gateway import TaskGateway
from app.sdk.interruptions import TaskTerminated, disarm, interruptible
from app.sdk.late_values import RETURN_KEY
from app.sdk.load_errors import sentence
from app.sdk.operators.base import BaseOperator
from app.sdk.task_log import task_log
from app.sdk.xcom_values import encode_xcom
from watchers.errors import EncodingRefused
from watchers.known_secrets import mask_known

__all__ = ["TaskGateway", "TaskTerminated", "execute", "prepare_interpreter", "task_log"]

_log = logging.getLogger("tidegate.task")
_LONGEST_ERROR = 16 * 1024
_OURS = str(Path(__file__).parent)


def prepare_interpreter() -> None:
    """Import what an attempt will need, before processes are forked from this one."""
    import asyncio  # noqa: F401
    import json  # noqa: F401
    import subprocess  # noqa: F401

    import app.sdk.templates  # noqa: F401
    import watchers.describe  # noqa: F401


def execute(dag: DAG, order: AttemptOrder, gateway: TaskGateway) -> Outcome:
    """Run one attempt and say how it ended. See the module's docstring."""
    try:
        task = copy.copy(dag.get_task(order.task_id))
    except KeyError as error:
        return Failed(error=f"{error.args[0]} in this version", retry=False)
    context = build_context(task, order, gateway, dag=dag)
    with current(context):
        outcome = _attempt(task, context, order)
        _call_back(task, context, outcome)
    return outcome


def _attempt(task: BaseOperator, context: Context, order: AttemptOrder) -> Outcome:
    """Everything that may end the attempt, turned into its outcome."""
    instance = context["ti"]
    try:
        with interruptible(order.execution_timeout):
            try:
                _prepare(task, context)
                result = task.execute(context)
                task.post_execute(context, result)
                _push_result(task, context, result)
                return Succeeded(xcoms=instance.pushed, outlet_events=context["outlet_events"].events())
            except (TaskTimeout, TaskTerminated):
                disarm()
                _stop(task)
                raise
    except SkipTask as skip:
        _log.info("skipped: %s", skip)
        return Skipped(reason=_shown(str(skip)), xcoms=instance.pushed)
    except FailTask as fault:
        _log.error("failed for good: %s", fault, exc_info=_in_user_code(fault))
        return Failed(error=_told(fault), retry=False, xcoms=instance.pushed)
    except TaskTerminated as end:
        _log.error("%s", end)
        return Failed(error=_shown(str(end)), xcoms=instance.pushed)
    except SystemExit as end:
        _log.error("the task ended the interpreter: SystemExit(%s)", end, exc_info=_in_user_code(end))
        return Failed(error=_shown(f"the task ended the interpreter: SystemExit({end})"), xcoms=instance.pushed)
    except BaseException as fault:  # noqa: BLE001 - user code may raise anything; it becomes the outcome
        _log.error("failed: %s", _told(fault), exc_info=_in_user_code(fault))
        context["exception"] = fault
        return Failed(error=_told(fault), xcoms=instance.pushed)


def _prepare(task: BaseOperator, context: Context) -> None:
    from app.sdk.templates import render_fields

    render_fields(task, context, dag=context["dag"])
    task.pre_execute(context)
    _run_callbacks(task.on_execute_callback, context, what="on_execute_callback")


def _push_result(task: BaseOperator, context: Context, result: Any) -> None:
    if result is None or not task.do_xcom_push:
        return
    instance = context["ti"]
    if task.multiple_outputs:
        if not isinstance(result, Mapping):
            raise TypeError(f"with multiple_outputs the task returns a dictionary, not {type(result).__name__}")
        for key, value in result.items():
            if not isinstance(key, str):
                raise TypeError(f"with multiple_outputs the keys are texts, not {key!r}")
            instance.xcom_push(key, value)
    try:
        instance.pushed[RETURN_KEY] = encode_xcom(result, name="return_value")
    except EncodingRefused as refusal:
        raise EncodingRefused(f"{refusal.reason} (or do not return it)", path=refusal.path) from None


def _stop(task: BaseOperator) -> None:
    try:
        task.on_kill()
    except Exception:  # noqa: BLE001 - the author's code; logged
        _log.exception("on_kill failed")


def _call_back(task: BaseOperator, context: Context, outcome: Outcome) -> None:
    match outcome:
        case Succeeded():
            _run_callbacks(task.on_success_callback, context, what="on_success_callback")
        case Skipped():
            _run_callbacks(task.on_skipped_callback, context, what="on_skipped_callback")
        case Failed(retry=retry):
            instance = context["ti"]
            if retry and may_retry(try_number=instance.try_number, max_tries=instance.max_tries):
                _run_callbacks(task.on_retry_callback, context, what="on_retry_callback")
            else:
                _run_callbacks(task.on_failure_callback, context, what="on_failure_callback")


def _run_callbacks(callbacks: Any, context: Context, *, what: str) -> None:
    for callback in [callbacks] if callable(callbacks) else callbacks or ():
        try:
            callback(context)
        except Exception:  # noqa: BLE001 - the author's code; logged
            _log.exception("%s failed", what)


def _in_user_code(fault: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """``fault`` for the log, its traceback from the first frame that is not ours on."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return type(fault), fault, trace or fault.__traceback__


def _told(fault: BaseException) -> str:
    return _shown(sentence(fault))


def _shown(text: str) -> str:
    """``text`` as it may leave this process: without known secrets, storable and bounded."""
    return mask_known(text).encode("utf-8", "backslashreplace").decode()[:_LONGEST_ERROR]
