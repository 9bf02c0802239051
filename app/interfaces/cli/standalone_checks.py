"""What `tidegate standalone` looks at before anything is started, or even imported: a refusal comes at once."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from app.kernel.errors import TidegateError


class PortTaken(TidegateError):
    """Another program listens on {host}:{port}. Choose another port with --port or TIDEGATE_API_PORT."""


class AddressUnusable(TidegateError):
    """The API cannot listen on {host}:{port}: {reason}. Name an address of this machine with --host or
    TIDEGATE_API_HOST, and a port with --port or TIDEGATE_API_PORT."""


class FolderUnusable(TidegateError):
    """The pipelines folder {folder} cannot be made or read: {reason}. Name another one with --dags or
    TIDEGATE_DAGS_FOLDER."""


def usable_port(host: str, port: int) -> int:
    """``port``, or a free one for 0. Looks at it as the API server will, so that this one need not fail in the end."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        with socket.create_server((host, port), family=family) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host=host, port=port) from error
        raise AddressUnusable(host=host, port=port, reason=_reason(error)) from error
    except ValueError as error:  # a name that cannot be written in the domain name system
        raise AddressUnusable(host=host, port=port, reason=error) from error


def made_folder(folder: Path) -> bool:
    """Whether the folder had to be made. Raises :class:`FolderUnusable`."""
    try:
        if folder.is_dir():
            os.scandir(folder).close()
            return False
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderUnusable(folder=folder, reason=_reason(error)) from error
    return True


def _reason(error: OSError) -> str:
    """Without what the library adds in brackets."""
    return (error.strerror or str(error)).partition(" (while")[0]
