"""The body of :class:`tests.services.moto.MotoServer`'s process: serve until standard input ends."""

from __future__ import annotations

import sys

from moto.server import ThreadedMotoServer


def main() -> None:
    """Print the port, then serve."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
