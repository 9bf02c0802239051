"""Free ports on the loopback address."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port that was free a moment ago; whoever listens on it must be ready to ask for another."""
    return free_ports(1)[0]


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
