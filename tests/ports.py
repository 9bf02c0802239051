"""Free ports on the loopback address."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A TCP port that was free a moment ago; whoever listens on it must be ready to ask for another."""
    return free_ports(1)[0]


def service_port() -> int:
    """A free TCP port outside the range of which the system gives ports to clients: it stays free while a service that
    is told of it starts, and starts again."""
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def free_ports(count: int) -> list[int]:
    """Different free ports, all held while they are chosen."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
