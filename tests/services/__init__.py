"""Real services for tests: started, watched and ended by the tests that use them."""

from __future__ import annotations
