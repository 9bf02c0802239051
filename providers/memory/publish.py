"""Publish to the memory broker: ``python -m providers.memory.publish NAME BODY…``."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from providers.memory.client import SOCKET_VARIABLE, MemoryClient, socket_path
from watchers.errors import SourceError


async def publish(socket: str | None, queue: str, bodies: list[bytes], *, lane: str | None = None) -> list[str]:
    """Append ``bodies`` to ``queue`` and return the messages' ids."""
    async with MemoryClient(socket_path(socket)) as client:
        return await client.publish(queue, bodies, lanes=[lane] * len(bodies))


def main(arguments: list[str] | None = None) -> int:
    """Publish each argument (or, without any, standard input as one body) and print the ids."""
    parser = argparse.ArgumentParser(prog="python -m providers.memory.publish", description=main.__doc__)
    parser.add_argument("queue", help="name of the queue, without memory://")
    parser.add_argument("body", nargs="*", help="one message each; none: standard input is one message")
    parser.add_argument("--lane", help="keep order among the messages of this lane")
    parser.add_argument("--socket", help=f"the broker's socket (default: {SOCKET_VARIABLE})")
    options = parser.parse_args(arguments)
    bodies = [os.fsencode(text) for text in options.body] or [sys.stdin.buffer.read()]
    queue = options.queue.removeprefix("memory://")
    try:
        identifiers = asyncio.run(publish(options.socket, queue, bodies, lane=options.lane))
    except SourceError as error:
        parser.exit(1, f"{error}\n")
    sys.stdout.write("".join(f"{identifier}\n" for identifier in identifiers))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
