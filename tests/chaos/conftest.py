"""Fixtures of the chaos tests: a seed, fleets of processes, sources."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.chaos import figures
from tests.chaos.fleet import Fleet
from tests.services.fixtures_kafka import kafka_client, own_kafka_service, shared_kafka_service
from tests.services.fixtures_sqs import moto_server, sqs_administration

__all__ = ["kafka_client", "moto_server", "own_kafka_service", "shared_kafka_service", "sqs_administration"]

#: Of the short part; the long one has a new seed each time. ``TIDEGATE_TEST_SEED`` repeats a run.
SHORT_SEED = 20_261_201
_GIVEN = os.environ.get("TIDEGATE_TEST_SEED")
_NEW = random.SystemRandom().randrange(1_000_000)

MakeFleet = Callable[..., Fleet]


def pytest_report_header() -> str:
    return f"chaos: seed {_GIVEN or f'{SHORT_SEED} (short part), {_NEW} (long part)'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if rows := figures.table():
        terminalreporter.section("figures of the chaos tests")
        for row in rows:
            terminalreporter.write_line(row)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test; printed, so that a failure can be repeated."""
    is_long = request.node.get_closest_marker("chaos") is not None
    chosen = int(_GIVEN) if _GIVEN else (_NEW if is_long else SHORT_SEED)
    print(f"seed {chosen}")
    return chosen


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> Random:
    """Random choices that the seed and the test's name repeat."""
    return Random(f"{seed} {request.node.name}")


@pytest.fixture
def make_fleet(tmp_path: Path, database_url: str, seed: int) -> MakeFleet:
    """A fleet on the test's database, to be entered."""

    def make(*, dsn: str | None = None, **environment: str) -> Fleet:
        return Fleet(tmp_path, dsn or database_url, seed=seed, environment=environment)

    return make
