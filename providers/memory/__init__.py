"""``memory://name``: a small broker of ours on a Unix socket, for tests and examples.

Start it with ``python -m providers.memory.broker --socket PATH``, publish with
``python -m providers.memory.publish NAME BODY``. Its messages end with its process.
"""

from __future__ import annotations

from providers.memory.provider import MemoryProvider
from providers.memory.trigger import MemoryTrigger

__all__ = ["MemoryProvider", "MemoryTrigger"]
