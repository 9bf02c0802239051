"""Start a foreign program so that it ends with its parent, as another user if asked.

Run by path, with nothing but the standard library: ``python -I -S launch.py UID GID SIGNAL PARENT PROGRAM [ARGUMENT…]``
(``-`` for UID and GID keeps the present ones). It changes user, asks the kernel for SIGNAL when the parent dies, and
becomes the program. A separate start instead of ``preexec_fn``, because forking a process with threads and then running
Python in the child can hang.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    uid, gid, death_signal, parent, program, *rest = arguments
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    # After the change of user: changing it clears the request (prctl(2)).
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(program, [program, *rest])  # noqa: S606  (the arguments are ours, no shell is wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
