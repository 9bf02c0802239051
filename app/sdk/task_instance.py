"""The running task instance: who it is, and its XComs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from app.sdk.identifiers import checked_identifier
from app.sdk.late_values import RETURN_KEY
from app.sdk.xcom_values import decode_xcom, encode_xcom

if TYPE_CHECKING:
    from app.domain.orders import AttemptOrder
    from app.sdk.context import Context, DagRun
    from app.sdk.gateway import TaskGateway
    from app.sdk.operators.base import BaseOperator


class TaskInstance:
    """One task of one run, while an attempt at it runs."""

    def __init__(self, *, task: BaseOperator, order: AttemptOrder, run: DagRun, gateway: TaskGateway) -> None:
        self.task = task
        self.dag_run = run
        self.dag_id = run.dag_id
        self.run_id = run.run_id
        self.task_id = order.task_id
        self.map_index = order.map_index
        self.try_number = order.try_number
        self.max_tries = order.max_tries
        self.log = logging.getLogger("tidegate.task")
        self.context: Context | None = None
        #: What was pushed so far, as canonical texts; stored in the transaction that ends the attempt.
        self.pushed: dict[str, str] = {}
        self._gateway = gateway
        self._upstream_states = order.upstream_states

    @property
    def idempotency_key(self) -> str:
        """A text that names this task of this run, the same in every attempt: a key for calls that must not repeat."""
        return f"{self.dag_id}/{self.run_id}/{self.task_id}/{self.map_index}"

    @property
    def is_eligible_to_retry(self) -> bool:
        """Whether another try is left after this one."""
        return self.try_number <= self.max_tries

    @property
    def upstream_states(self) -> dict[str, str]:
        """The states of the tasks directly upstream, by task id."""
        return dict(self._upstream_states)

    def xcom_push(self, key: str, value: Any) -> None:
        """Leave ``value`` under ``key`` for other tasks; it is there once this attempt has ended.

        Raises :class:`EncodingRefused` with the place of what has no encoding.
        """
        checked_identifier(key, "the key of an XCom")
        self.pushed[key] = encode_xcom(value, name=f"xcom[{key!r}]")

    def xcom_pull(
        self,
        task_ids: str | Iterable[str] | None = None,
        key: str = RETURN_KEY,
        default: Any = None,
        *,
        map_indexes: Any = None,
    ) -> Any:
        """What ``task_ids`` left under ``key`` in this run: a value for one id, a list for several.

        Without ids, the first of the tasks directly upstream that has one. ``default`` stands for what does not exist.
        """
        if isinstance(task_ids, str):
            return self._pull([task_ids], key).get(task_ids, default)
        if task_ids is None:
            ids = list(self.task.upstream_task_ids) or [self.task_id]
            return next(iter(self._pull(ids, key).values()), default)
        ids = list(task_ids)
        found = self._pull(ids, key)
        return [found.get(task_id, default) for task_id in ids]

    def _pull(self, task_ids: list[str], key: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.task_id in task_ids and key in self.pushed:
            found[self.task_id] = decode_xcom(self.pushed[key])
        asked = [task_id for task_id in task_ids if task_id not in found]
        texts = dict(self._gateway.xcom_pull(task_ids=asked, key=key)) if asked else {}
        found.update({task_id: decode_xcom(texts[task_id]) for task_id in asked if task_id in texts})
        return {task_id: found[task_id] for task_id in task_ids if task_id in found}

    def __repr__(self) -> str:
        return f"<TaskInstance: {self.dag_id}.{self.task_id} {self.run_id} try {self.try_number}>"
