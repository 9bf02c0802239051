"""Applies filters and schemas to payloads: ``python -P -m app.processes.fan_out_child FD``.

Both are data of authors and may take any time for some payload; the parent ends a child that takes too long.
"""

from __future__ import annotations

import os
import socket
import sys

from app.domain.fan_out import FanOut, load_libraries
from app.kernel.children import die_with_parent
from app.kernel.frames import BlockingFrames, PeerGone
from app.processes.fan_out_messages import Check, Checked, Ready, ToChild


def main(arguments: list[str]) -> None:
    """Answer what comes over the socket of descriptor ``arguments[0]`` until it is closed."""
    die_with_parent()
    end = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(end.fileno(), False)
    frames = BlockingFrames(end, ToChild)
    # Before the time of the first order begins to count.
    load_libraries()
    try:
        frames.send(Ready())
        while True:
            order: Check = frames.receive()
            passing, refusals = FanOut(order.watchers).passing(order.payload)
            frames.send(Checked(passing=passing, refusals=refusals))
    except PeerGone:
        return


if __name__ == "__main__":
    main(sys.argv[1:])
