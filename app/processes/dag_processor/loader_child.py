"""Imports one pipeline file and says what it declares: ``python -P -m app.processes.dag_processor.loader_child FD``.

User code runs here and may do anything; the parent relies on nothing but one well-formed frame in time.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys

from app.domain.specs import LoadResult, LocatedError
from app.kernel.children import die_with_parent
from app.kernel.frames import BlockingFrames, FrameError, PeerGone
from app.processes.dag_processor.messages import Load, Loaded, Ready, ToChild


def main(arguments: list[str]) -> None:
    """Answer the one order that comes over the socket of descriptor ``arguments[0]``."""
    die_with_parent()
    faulthandler.enable()
    end = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(end.fileno(), False)
    frames = BlockingFrames(end, ToChild)
    # Imported before the author's time begins to count.
    from app.sdk import loader  # noqa: F401

    frames.send(Ready())
    order: Load = frames.receive()
    faulthandler.dump_traceback_later(order.patience)
    _answer(frames, _load(order))


def _load(order: Load) -> LoadResult:
    from app.sdk.loader import describe, load_pipeline

    return describe(load_pipeline(order.root, order.file), max_kwargs_bytes=order.max_kwargs_bytes)


def _answer(frames: BlockingFrames, result: LoadResult) -> None:
    try:
        try:
            frames.send(Loaded(result=result))
        except PeerGone:
            raise
        except (FrameError, TypeError, ValueError, RecursionError) as error:
            message = f"what the file declares cannot be passed on: {type(error).__name__}: {error}"
            refused = LoadResult(
                file=result.file,
                modules=result.modules,
                error=LocatedError(file=result.file, message=message),
                duration=result.duration,
            )
            frames.send(Loaded(result=refused))
    except PeerGone:
        return


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads and exit handlers of the author's code have no say in when this process ends.
    sys.stdout.flush()
    os._exit(0)
