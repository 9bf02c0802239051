"""Fixtures of the acceptance tests: a deployment each, real brokers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.deployment import Deployment
from tests.services.fixtures_kafka import kafka_client, own_kafka_service, shared_kafka_service
from tests.services.fixtures_sqs import moto_server, sqs_administration

__all__ = ["kafka_client", "moto_server", "own_kafka_service", "shared_kafka_service", "sqs_administration"]

Deploy = Callable[..., Deployment]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """An empty pipelines folder."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    return folder


@pytest.fixture
def deploy(home: Path, tmp_path: Path) -> Iterator[Deploy]:
    """Start deployments; they are stopped after the test, and must end in time."""
    with ExitStack() as stack:

        def start(dags: Path, **environment: str) -> Deployment:
            return stack.enter_context(Deployment(home, dags, log=tmp_path / "standalone.log", environment=environment))

        yield start


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, so that a test's files stay its own."""
    copy = Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("inbox")))
    (copy / "inbox").mkdir()  # empty, whatever a person dropped into the one of the checkout
    return copy
