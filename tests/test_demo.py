"""The demo shows runs of both queues, and Ctrl-C leaves nothing of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.deployment import ROOT
from tests.ports import free_port
from tests.waiting import eventually_sync

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sqs,
    pytest.mark.kafka,
    pytest.mark.xdist_group("kafka"),
    pytest.mark.timeout(180),
]


def test_demo() -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "tests.demo"],
        cwd=ROOT,
        env={**os.environ, "TIDEGATE_API_PORT": str(free_port())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said: list[str] = []
    wanted = {"✓ kafka_orders", "✓ sqs_orders"}
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            said.append(line)
            wanted -= {start for start in wanted if line.startswith(start)}
            if not wanted:
                break
        running = psutil.Process(demo.pid).children(recursive=True) if not wanted else []
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=60)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
            demo.wait(30)
    text = "".join(said) + rest
    assert not wanted, text
    assert demo.returncode == 0, text
    found = re.search(r"Drop files of your own into (\S+)/examples/inbox", text)
    assert found is not None, text
    assert not Path(found[1]).exists()
    assert running
    eventually_sync(lambda: not [child for child in running if child.is_running()], what="no child is left")
