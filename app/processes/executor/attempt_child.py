"""The task process: runs one attempt and reports its outcome.

Normally forked from a warm parent. Started on its own (``python -P -m app.processes.executor.attempt_child``) it
imports the pipeline file first: slower, for files whose import does not survive a fork.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.domain.orders import AttemptOrder, EventValue, Failed, Outcome
from app.kernel.children import PARENT_VARIABLE, die_with_parent
from app.kernel.frames import BlockingFrames, FrameError
from app.processes.executor import messages

if TYPE_CHECKING:
    from app.domain.specs import AssetKey
    from app.sdk.loader import LoadedFile


class RequestRefused(Exception):
    """The executor could not answer a request of the task (it says why)."""


class FrameGateway:
    """The task's way to the outside, over frames: ``app.sdk.execution.TaskGateway``."""

    def __init__(self, frames: BlockingFrames) -> None:
        self._frames = frames
        self._process = os.getpid()

    def xcom_pull(self, *, task_ids: list[str], key: str) -> list[tuple[str, str]]:
        """XComs of this run as ``(task_id, canonical text)``; missing ones are left out."""
        return [(task_id, text) for task_id, text in self._ask(messages.PullXCom(task_ids=task_ids, key=key))]

    def inlet_events(
        self,
        asset: AssetKey,
        *,
        after: str | None = None,
        before: str | None = None,
        ascending: bool = True,
        limit: int | None = None,
    ) -> list[EventValue]:
        """Events of ``asset``, filtered by moments in ISO 8601."""
        import msgspec

        answer = self._ask(
            messages.ListInletEvents(
                name=asset.name, uri=asset.uri, after=after, before=before, ascending=ascending, limit=limit
            )
        )
        return msgspec.convert(answer, list[EventValue])

    def _ask(self, request: messages.Request) -> Any:
        if os.getpid() != self._process:
            raise RequestRefused("only the task's own process can reach the executor, not a child it forked")
        self._frames.send(request)
        reply = self._frames.receive()
        if not isinstance(reply, messages.Reply):
            raise RequestRefused(f"unexpected {type(reply).__name__} instead of a reply")
        if reply.error is not None:
            raise RequestRefused(reply.error)
        return reply.value


def run_attempt(descriptor: int, loaded: LoadedFile | None, *, root: Path | None = None, entry: str = "") -> int:
    """Read the order from ``descriptor``, run it, report. Returns the process's exit status."""
    end = socket.socket(fileno=descriptor)
    frames = BlockingFrames(end, messages.ToAttempt, limit=messages.MAX_TO_ATTEMPT)
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        first = frames.receive()
    except FrameError:
        return 0  # the executor changed its mind before anything ran
    outcome = _run(first.order, loaded, root=root, entry=entry, gateway=FrameGateway(frames))
    try:
        frames.send(messages.Finished(outcome=outcome))
    except FrameError as error:
        frames.send(messages.Finished(outcome=Failed(error=f"the result is too large to report: {error}")))
    return 0


def _run(
    order: AttemptOrder, loaded: LoadedFile | None, *, root: Path | None, entry: str, gateway: FrameGateway
) -> Outcome:
    from app.sdk import execution
    from app.sdk.errors import PipelineError
    from app.sdk.loader import load_pipeline
    from watchers.known_secrets import mask_known

    with execution.task_log(order.log_path, limit=order.log_limit):
        try:
            if loaded is None:
                assert root is not None
                loaded = load_pipeline(root, entry)
            dag = loaded.dag(order.run.dag_id)
        except PipelineError as error:
            return Failed(error=mask_known(f"the pipeline file of this version cannot be used: {error}"))
        try:
            return execution.execute(dag, order, gateway)
        except BaseException:  # noqa: BLE001 - the last stand of a process that runs user code: everything becomes an outcome
            return Failed(error=mask_known(traceback.format_exc(limit=20)))


def main(arguments: list[str] | None = None) -> int:
    """Import the pipeline file and run one attempt."""
    parser = argparse.ArgumentParser(description="Runs one task attempt in a fresh interpreter.")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--entry", required=True)
    options = parser.parse_args(arguments)
    die_with_parent()
    os.environ.pop(PARENT_VARIABLE, None)
    return run_attempt(options.socket, None, root=options.root, entry=options.entry)


if __name__ == "__main__":
    sys.exit(main())
