"""Settings of the executors under test."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.kernel.settings import Settings


@pytest.fixture
def executor_settings(home: Path) -> Settings:
    """A few slots, and short patience with attempts that have to end."""
    return Settings(home=home, parallelism=4, task_kill_grace=1)
